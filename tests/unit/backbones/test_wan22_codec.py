from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import save_file

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.codec import (
    TINY_ARGUMENTS,
    TINY_WEIGHTS,
    build_vae,
    open_codec,
    open_tiny_codec,
)
from solarwm.errors.types import SolarError

CPU = torch.device("cpu")
TINY = SPEC.profiles["tiny"]
ARGUMENTS = {
    "base_dim": 8,
    "decoder_base_dim": 8,
    "z_dim": 48,
    "dim_mult": [1, 1, 2, 2],
    "num_res_blocks": 1,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 4,
    "latents_mean": [0.1] * 48,
    "latents_std": [0.5] * 48,
}


def write(folder, seed=0, **changes):
    torch.manual_seed(seed)
    arguments = {**ARGUMENTS, **changes}
    state = build_vae(arguments).state_dict()
    save_file({k: v.half().contiguous() for k, v in state.items()}, folder / TINY_WEIGHTS)
    (folder / TINY_ARGUMENTS).write_text(json.dumps({"arguments": arguments}))
    return folder


@pytest.fixture
def codec(tmp_path):
    return open_tiny_codec(write(tmp_path), TINY, device=CPU)


def clip(frames=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (frames, 64, 96, 3), dtype=torch.uint8, generator=generator)


def test_shapes_follow_the_geometry(codec):
    latents = codec.encode_video(clip())
    assert latents.shape == (3, 48, 4, 6)
    assert latents.dtype == torch.float32
    pixels = codec.decode_video(latents)
    assert pixels.shape == (9, 64, 96, 3)
    assert pixels.dtype == torch.uint8
    assert codec.encode_text(["a room", ""]).shape == (2, 16, 64)


def test_equal_input_gives_equal_bits_whatever_came_before(codec, tmp_path):
    first = codec.encode_video(clip())
    codec.encode_video(clip(17, seed=1))
    torch.manual_seed(99)
    assert torch.equal(codec.encode_video(clip()), first)
    fresh = open_tiny_codec(tmp_path, TINY, device=CPU)
    assert torch.equal(fresh.encode_video(clip()), first)


def test_latents_are_the_normalised_posterior_mean(tmp_path):
    codec = open_tiny_codec(write(tmp_path), TINY, device=CPU)
    state = {k: v.half().float() for k, v in _state().items()}
    vae = build_vae(ARGUMENTS)
    vae.load_state_dict(state)
    video = clip().permute(3, 0, 1, 2)[None].float() / 127.5 - 1
    mean = vae.encode(video).latent_dist.mean
    expected = ((mean - 0.1) / 0.5)[0].transpose(0, 1)
    torch.testing.assert_close(codec.encode_video(clip()), expected)


def _state():
    torch.manual_seed(0)
    return build_vae(ARGUMENTS).state_dict()


def test_the_digest_names_weights_arguments_and_text_size(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    same = [open_tiny_codec(write(folders[0]), TINY, device=CPU).digest for _ in range(2)]
    weights = open_tiny_codec(write(folders[1], seed=1), TINY, device=CPU).digest
    statistics = open_tiny_codec(write(folders[2], latents_std=[0.6] * 48), TINY, device=CPU).digest
    assert same[0] == same[1]
    assert len({same[0], weights, statistics}) == 3


def test_illegal_clips_are_refused_with_the_legal_numbers(codec):
    with pytest.raises(ValueError, match=r"\(9, 13\)"):
        codec.encode_video(clip(10))
    with pytest.raises(ValueError, match="multiples of 32"):
        codec.encode_video(torch.zeros(9, 60, 96, 3, dtype=torch.uint8))


def test_opening_reads_files_but_loads_no_library(tmp_path):
    import subprocess

    write(tmp_path)
    code = (
        "import sys, torch; from pathlib import Path; from solarwm.backbones.wan22_5b.spec import "
        "SPEC; from solarwm.backbones.wan22_core.codec import open_tiny_codec; "
        f"c = open_tiny_codec(Path({str(tmp_path)!r}), SPEC.profiles['tiny'], "
        "device=torch.device('cpu')); c.encode_text(['a']); print('diffusers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_files_and_the_released_profile_are_clear_errors(tmp_path):
    with pytest.raises(SolarError) as caught:
        open_tiny_codec(tmp_path, TINY, device=CPU)
    assert (caught.value.code, caught.value.exit_code) == ("weights.missing", 3)
    with pytest.raises(SolarError) as caught:
        open_codec(SPEC.profiles["released"], SPEC, base_path=None, assets=None, device=CPU)
    assert caught.value.code == "weights.codec-unavailable"


def test_a_clip_decoded_piece_by_piece_equals_the_clip_decoded_at_once(codec):
    latents = codec.encode_video(clip(17))
    whole = codec.decode_video(latents)
    decoder = codec.decoder()
    parts = [decoder.push(latents[start:stop]) for start, stop in ((0, 1), (1, 3), (3, 5))]
    assert [len(part) for part in parts] == [1, 8, 8]
    assert torch.equal(torch.cat(parts), whole)
    vae = codec._open()
    library = vae.decode((latents * 0.5 + 0.1).transpose(0, 1)[None]).sample[0]
    pixels = ((library + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0)
    assert torch.equal(pixels, whole)


@pytest.mark.parametrize("tile", [1, 3, 7, 60])
def test_tiles_of_any_size_give_the_frames_of_the_library(codec, tile):
    generator = torch.Generator().manual_seed(tile)
    channels = codec.geometry.channels
    latents = torch.randn(61, channels, 1, 2, generator=generator)
    decoder = codec.decoder()
    frames = torch.cat([decoder.push(latents[at : at + tile]) for at in range(0, 61, tile)])
    vae = codec._open()
    library = vae.decode(
        (latents * codec._scale[0].transpose(0, 1) + codec._shift[0].transpose(0, 1)).transpose(
            0, 1
        )[None]
    ).sample[0]
    pixels = ((library.clamp(-1, 1) + 1) * 127.5).permute(1, 2, 3, 0)
    assert len(frames) == 241
    assert float((frames.float() - pixels).abs().max()) <= 0.5 + 127.5 * 1e-5


def test_what_a_decoder_keeps_does_not_grow(codec):
    latents = codec.encode_video(clip(17))
    decoder = codec.decoder()
    sizes = []
    for _ in range(6):
        decoder.push(latents[:3])
        sizes.append(sum(t.nbytes for t in decoder._cache if isinstance(t, torch.Tensor)))
    assert len(set(sizes[1:])) == 1
