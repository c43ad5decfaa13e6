"""Chunk masks, teacher forcing, the flow-map embedding and cached rollouts against stored numbers."""

from __future__ import annotations

import json
import re

import torch

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.backbone import WanBackbone
from solarwm.data.tensors import LatentBatch
from solarwm.nn.chunks import ChunkWindow
from solarwm.routes.spec import LatentGeometry, ModelDims, Profile

# The constant focal lengths of the published recipe: 969.6969... over 1920 and 1080 pixels.
FOCAL = 969.6969696969697
LENS = torch.tensor([[FOCAL / 1920, 0, 0.5], [0, FOCAL / 1080, 0.5], [0, 0, 1]])


def profile_of(config: dict) -> Profile:
    channels = config["channels"]
    return Profile(
        name="golden",
        dims=ModelDims(
            dim=config["dim"],
            num_layers=config["num_layers"],
            num_heads=config["num_heads"],
            ffn_dim=config["ffn_dim"],
            in_channels=channels,
            out_channels=channels,
            patch=tuple(config["patch_size"]),
            text_dim=config["text_dim"],
            text_len=config["text_len"],
            freq_dim=config["freq_dim"],
        ),
        geometry=LatentGeometry(
            channels=channels,
            spatial_stride=16,
            first_frames=1,
            first_latents=1,
            period_frames=4,
            period_latents=1,
            size_multiple=32,
        ),
        default_height=config["latent_height"] * 16,
        default_width=config["latent_width"] * 16,
        default_frames=33,
    )


def backbone_of(config: dict, window: ChunkWindow, numerics: str) -> WanBackbone:
    return WanBackbone(
        SPEC,
        profile_of(config),
        translation_transform="linear",
        numerics=numerics,
        window=window,
    )


def conditions_of(backbone, latents_BFCHW, text_BTD, viewmats_F44):
    batch = LatentBatch(
        latents_BFCHW=latents_BFCHW,
        text_BTD=text_BTD,
        viewmats_BF44=viewmats_F44[None],
        intrinsics_B33=LENS[None],
        sample_ids=("golden",),
        start_frames=(0,),
        slots=(0,),
        occurrences=(0,),
    )
    return backbone.conditions(batch)


def module_of(backbone, golden, *, delta=None, gate=None):
    file = golden("wan22_tiny_weights.safetensors")
    state = {key.removeprefix("sd."): file[key] for key in file.tensors}
    module = backbone.build(device="cpu", seed=0, endpoint_gate=gate)
    module.load_state_dict(state | (delta or {}))
    loaded = module.state_dict()
    for key in state:
        file.compare(f"sd.{key}", loaded[key], atol=0, rtol=0)
    return module


def dense(pairs, key_chunks: int, tokens: int) -> torch.Tensor:
    allowed = torch.zeros(len(pairs), key_chunks, dtype=torch.bool)
    for query, seen in enumerate(pairs):
        allowed[query, list(seen)] = True
    return allowed.repeat_interleave(tokens, 0).repeat_interleave(tokens, 1)


def test_chunk_pairs_are_the_published_masks(golden):
    file = golden("wan22_masks.safetensors")
    for key in file.tensors:
        numbers = {name: int(value) for name, value in re.findall(r"([a-zA-Z])(\d+)", key)}
        size, tokens = numbers["b"], numbers["b"] * numbers["s"]
        chunks = numbers["F"] // size
        if key.startswith("tf_"):
            window = ChunkWindow(
                chunk_frames=size,
                prior_chunks=numbers["p"],
                sink_frames=numbers["k"],
                clean_windowed=False,
            )
            pairs, key_chunks = window.forced_pairs(chunks), 2 * chunks
        else:
            window = ChunkWindow(chunk_frames=size)
            pairs = tuple(window.clean_of_clean(chunk) for chunk in range(chunks))
            key_chunks = chunks
        file.compare(key, dense(pairs, key_chunks, tokens))


def test_teacher_forcing_without_and_with_camera_and_as_a_flow_map(golden):
    file = golden("wan22_teacher_forcing.safetensors")
    config = json.loads(file.metadata["config"])
    window = ChunkWindow(
        chunk_frames=int(file["block"]), prior_chunks=int(file["max_prior"]), clean_windowed=False
    )
    backbone = backbone_of(config, window, "published")
    clean, noisy = (file[name].transpose(1, 2) for name in ("clean", "noisy"))
    sigma, endpoint = file["timestep_frames"] / 1000, file["r_frames"] / 1000
    level = sigma[..., None, None, None]
    noise = file["noise"].transpose(1, 2)
    torch.testing.assert_close((1 - level) * clean + level * noise, noisy, atol=1e-5, rtol=1e-5)
    seen = conditions_of(backbone, clean, file["context"], file["viewmats_frames"])
    blind = type(seen)(
        text_BTD=seen.text_BTD, viewmats_BF44=None, intrinsics_BF33=None, camera=None
    )
    module = module_of(backbone, golden)
    delta = {
        key.removeprefix("sd."): file[key] for key in file.tensors if key.startswith("sd.delta")
    }
    flow_map = module_of(backbone, golden, delta=delta, gate=config["anyflow_gate"])
    for name, used, conditions, end in (
        ("out_fm", module, seen, None),
        ("out_fm_no_camera", module, blind, None),
        ("out_anyflow", flow_map, seen, endpoint),
    ):
        context = backbone.clean_context(clean)
        for _ in range(2):  # both halves together, then the noisy half alone
            with torch.no_grad():
                out = backbone.velocity(
                    used,
                    noisy,
                    sigma,
                    conditions,
                    layout="teacher_forcing",
                    endpoint_BF=end,
                    context=context,
                )
            file.compare(name, out.transpose(1, 2))
            assert context.filled


def test_cached_rollout_with_published_positions(golden):
    file = golden("wan22_cached_rollout.safetensors")
    config = json.loads(file.metadata["config"])
    size = int(file["block"])
    window = ChunkWindow(
        chunk_frames=size,
        prior_chunks=int(file["window_frames"]) // size - 1,
        aligned=False,
        clean_windowed=False,
    )
    backbone = backbone_of(config, window, "published")
    module = module_of(backbone, golden)
    clean, noisy = (file[name].transpose(1, 2) for name in ("clean", "noisy"))
    sigma = file["timestep_frames"] / 1000
    conditions = conditions_of(backbone, clean, file["context"], file["viewmats_frames"])
    cache = backbone.open_cache(clean)
    parts = []
    with torch.no_grad():
        for start in range(0, clean.shape[1], size):
            here = slice(start, start + size)
            part = backbone.frames(conditions, start, start + size)
            parts.append(
                backbone.velocity(
                    module, noisy[:, here], sigma[:, here], part, layout="cached", cache=cache
                )
            )
            backbone.commit(module, clean[:, here], part, cache)
    file.compare("out_cached", torch.cat(parts, dim=1).transpose(1, 2))
    keys, values = cache.committed(layer=0)
    heads = config["num_heads"]
    file.compare("cached_k_layer0", keys.unflatten(-1, (heads, -1)))
    file.compare("cached_v_layer0", values.unflatten(-1, (heads, -1)))


def test_image_conditioned_transformer(golden):
    from solarwm.backbones.wan22_core.model import WanTransformer
    from solarwm.nn.camera_attention import camera_matrices

    file = golden("wan22_dit_i2v.safetensors")
    config = json.loads(file.metadata["config"])
    state = {key.removeprefix("sd."): file[key] for key in file.tensors if key.startswith("sd.")}
    latents = torch.cat([file["latents"], file["i2v_y"]], dim=1).transpose(1, 2)
    dims = profile_of(config | {"channels": file["latents"].shape[1]}).dims
    model = WanTransformer(
        ModelDims(
            **{name: getattr(dims, name) for name in ModelDims.__slots__ if name != "in_channels"},
            in_channels=latents.shape[2],
        )
    )
    model.load_state_dict(state)
    frames = latents.shape[1]
    view = file["viewmats_tokens"].unflatten(1, (frames, -1))[:, :, 0]
    lens = file["K_tokens"].unflatten(1, (frames, -1))[:, :, 0]
    inputs = (latents, file["timestep_frames"], file["context"])
    with torch.no_grad():
        file.compare("out_no_camera", model(*inputs).transpose(1, 2))
        out = model(*inputs, camera_matrices(view, lens))
    file.compare("out_fused_prope_linear", out.transpose(1, 2))
