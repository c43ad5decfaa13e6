"""Rotary positions, camera attention and the whole transformer against stored numbers."""

from __future__ import annotations

import torch

from solarwm.backbones.wan22_core.model import WanTransformer
from solarwm.camera.torch import TRANSFORMS, viewmats
from solarwm.nn.attention import attend
from solarwm.nn.camera_attention import camera_matrices, transform
from solarwm.nn.rope import rotate, rotation_table
from solarwm.routes.spec import ModelDims


def test_rotary_positions_with_repeated_slots(golden):
    file = golden("wan22_rope.safetensors")
    x = file["x"]
    height, width = file["grid_hw"].tolist()
    table = rotation_table(tuple(file["frames"].tolist()), height, width, x.shape[-1])
    file.compare("y", rotate(x.flatten(2), table).view(x.shape))


def test_camera_attention_for_every_translation_transform(golden):
    file = golden("wan22_prope.safetensors")
    c2w, per_frame = file["c2w"], int(file["tokens_per_frame"])
    q, k, v = file["q"], file["k"], file["v"]
    indices = torch.tensor([0, *range(1, len(c2w), 4)])
    indices = indices[: q.shape[1] // per_frame]
    file.compare("latent_pixel_indices", indices)
    relative = viewmats(c2w[indices])
    file.compare("viewmats_frames", relative)
    lens = file["K_frame"][None]
    names = sorted({key.split(".")[0] for key in file.keys() if "." in key})  # noqa: SIM118
    assert names
    for name in names:
        view = TRANSFORMS[name](relative)
        file.compare(f"{name}.viewmats", view)
        camera = camera_matrices(view[None], lens)
        turned_q = transform(q, camera.query_BFGG)
        turned_k, turned_v = (transform(x, camera.key_BFGG) for x in (k, v))
        file.compare(f"{name}.q", turned_q)
        file.compare(f"{name}.k", turned_k)
        file.compare(f"{name}.v", turned_v)
        out = transform(attend(turned_q, turned_k, turned_v), camera.out_BFGG)
        file.compare(f"{name}.attn_out", out)
        if f"{name}.separate_out" in file:
            last = camera_matrices(view[None, -1:], lens)
            query = transform(q[:, -per_frame:], last.query_BFGG)
            out = transform(attend(query, turned_k, turned_v), last.out_BFGG)
            file.compare(f"{name}.separate_out", out)


def dims_of(config: dict) -> ModelDims:
    return ModelDims(
        dim=config["dim"],
        num_layers=config["num_layers"],
        num_heads=config["num_heads"],
        ffn_dim=config["ffn_dim"],
        in_channels=config["channels"],
        out_channels=config["channels"],
        patch=tuple(config["patch_size"]),
        text_dim=config["text_dim"],
        text_len=config["text_len"],
        freq_dim=config["freq_dim"],
    )


def test_transformer_without_and_with_camera(golden):
    weights = golden("wan22_tiny_weights.safetensors")
    model = WanTransformer(dims_of(weights.config))
    state = {key.removeprefix("sd."): weights[key] for key in weights.keys()}  # noqa: SIM118
    model.load_state_dict(state)
    for key, value in model.state_dict().items():
        weights.compare(f"sd.{key}", value, atol=0, rtol=0)
    file = golden("wan22_dit_bidirectional.safetensors")
    latents = file["latents"].transpose(1, 2)
    frames = latents.shape[1]

    def by_frame(tokens):
        value = tokens.unflatten(1, (frames, -1))
        assert torch.equal(value, value[:, :, :1].expand_as(value))
        return value[:, :, 0]

    times = by_frame(file["timestep_tokens"])
    file.compare("timestep_frames", times)
    view, lens = by_frame(file["viewmats_tokens"]), by_frame(file["K_tokens"])
    inputs = (latents, times, file["context"])
    with torch.no_grad():
        file.compare("out_no_camera", model(*inputs).transpose(1, 2))
        prefix = "out_fused_prope_"
        names = [key.removeprefix(prefix) for key in file.tensors if key.startswith(prefix)]
        assert names
        for name in names:
            out = model(*inputs, camera_matrices(TRANSFORMS[name](view), lens))
            file.compare(prefix + name, out.transpose(1, 2))
