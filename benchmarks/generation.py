"""A long generation: its chunks far along the way, and its decoding beside that of the library.

The rollout is that of `rollout.py`; every chunk from the eighth on sees a full window. Decoding is that of
the shipped small autoencoder, 24 latents of 64x96 pixels in tiles of 12, against `AutoencoderKLWan.decode` of
all of them, which keeps every frame in fp32. Frames of both are compared first. Ours also turns them into
bytes.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.ratio import Ratio, measure
from benchmarks.rollout import WINDOW, Rollout
from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.inference.rollout import LONG_TILE_LATENTS, TileDecoder

CHUNKS, LATENTS = 200, 24
TOLERANCE = 1e-5


def rows(*, rounds: int) -> list[Ratio]:
    """Chunk latency along 200 chunks, and decode throughput."""
    return [_latency(rounds), _decoding(rounds)]


def _latency(rounds: int) -> Ratio:
    rollout = Rollout()
    early, late = rollout.cache_at(WINDOW + 1), rollout.cache_at(CHUNKS)
    if early.nbytes != late.nbytes:
        raise RuntimeError(f"buffers grew from {early.nbytes} to {late.nbytes} bytes")
    return measure(
        f"rollout, chunk {CHUNKS}",
        lambda: rollout.chunk(late),
        lambda: rollout.chunk(early),
        anchor_name=f"chunk {WINDOW + 1}",
        target=1.08,
        rounds=2 * rounds,
        clock=time.process_time,
    )


def _decoding(rounds: int) -> Ratio:
    torch.set_num_threads(1)
    model: Any = type("Model", (), {"camera_translation_transform": "linear"})
    backbone = create(SPEC.profiles["tiny"], model)
    codec: Any = backbone.codec(base_path=None, assets=None, device=torch.device("cpu"))
    latents = torch.randn(LATENTS, 48, 4, 6, generator=torch.Generator().manual_seed(0))
    vae = codec._open()

    @torch.no_grad()
    def whole() -> torch.Tensor:
        mixed = latents.transpose(0, 1)[None] * codec._scale + codec._shift
        return vae.decode(mixed).sample[0]

    def tiled() -> None:
        tiles = TileDecoder(codec.decoder(), LONG_TILE_LATENTS, lambda frames: None)
        for piece in latents.split(3):
            tiles.push(piece)
        tiles.finish()

    ours = torch.cat(list(codec.decoder().pictures(latents))).clamp(-1, 1)
    apart = float((ours.permute(3, 0, 1, 2) - whole()).abs().max())
    print(f"decoding: ways differ by {apart:.1e}")
    if apart > TOLERANCE:
        raise RuntimeError(f"the ways of decoding differ by {apart}")
    return measure(
        f"decode {LATENTS} latents in tiles of {LONG_TILE_LATENTS}",
        tiled,
        whole,
        anchor_name="AutoencoderKLWan.decode",
        target=1.0,
        rounds=rounds,
        clock=time.process_time,
    )
