"""Rollouts of any length in memory that does not grow with it: chunks are sampled, decoded in tiles
with one continuous cache, and handed on as frames.

Shapes: B batch, F latent frames, f frames of a chunk, C latent channels, H W latent height and
width, N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from solarwm.backbones.seam import Backbone, VideoDecoder
from solarwm.inference.cases import Case
from solarwm.inference.causal_field import CausalField
from solarwm.inference.chunked import roll_chunks
from solarwm.inference.generate import (
    CaseInputs,
    case_batch,
    case_track,
    chunk_settings,
    track_span,
)
from solarwm.inference.plan import PassPlan

TILE_LATENTS, LONG_TILE_LATENTS = 60, 12
LONG_FRAMES = 4096
"""Clips of more pixel frames are decoded in the smaller tiles."""
_DRAWN_TOGETHER = 16
"""The CPU generator fills a tensor in runs of this many numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """What is left of a finished rollout; its frames went to the taker."""

    latents: int
    """Latent frames sampled: whole chunks."""
    c2w_N44: np.ndarray
    """Absolute track of the frames that were kept."""
    held_N44: np.ndarray
    """The same with the last pose held to the end of the last chunk."""
    sampling_s: float
    """Seconds the transformer took, what became of the chunks not counted."""


def tile_latents(num_frames: int) -> int:
    """Latent frames decoded together in a clip of `num_frames` pixel frames."""
    return TILE_LATENTS if num_frames <= LONG_FRAMES else LONG_TILE_LATENTS


class StartNoise:
    """Start noise of a case piece by piece: the numbers of one draw over all its latent frames."""

    def __init__(self, case: Case, shape_FCHW: tuple[int, ...], device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(case.noise_seed)
        self._shape = shape_FCHW
        self._device = device
        self._next = 0
        self._rest: Tensor | None = None

    def __call__(self, start: int, stop: int) -> Tensor:
        """Noise [1,f,C,H,W] of the latent frames start..stop-1, which follow those before."""
        if start != self._next:
            raise ValueError(f"latent frame {self._next} comes next, not {start}")
        self._next = stop
        frames, *frame = self._shape
        if (stop - start) * int(np.prod(frame)) % _DRAWN_TOGETHER and self._rest is None:
            # Pieces of another size are other numbers: draw what is left at once.
            self._rest = self._draw(frames - start, frame)
        if self._rest is None:
            piece = self._draw(stop - start, frame)
        else:
            piece, self._rest = self._rest[: stop - start], self._rest[stop - start :]
        return piece[None].to(self._device)

    def _draw(self, frames: int, frame: list[int]) -> Tensor:
        return torch.randn((frames, *frame), generator=self._generator, dtype=torch.float32)


class TileDecoder:
    """Collects latents to tiles and decodes each with what the decoder kept of those before."""

    def __init__(
        self, decoder: VideoDecoder, tile: int, on_frames: Callable[[np.ndarray], None]
    ) -> None:
        self._decoder = decoder
        self._tile = tile
        self._on_frames = on_frames
        self._waiting: list[Tensor] = []
        self._count = 0

    def push(self, latents_FCHW: Tensor) -> None:
        """The next latents; frames go on as soon as a tile is full."""
        self._waiting.append(latents_FCHW)
        self._count += len(latents_FCHW)
        while self._count >= self._tile:
            self._decode(self._tile)

    def finish(self) -> None:
        """Decode what is left."""
        if self._count:
            self._decode(self._count)

    def _decode(self, count: int) -> None:
        latents = torch.cat(self._waiting)
        tile, rest = latents[:count], latents[count:]
        self._waiting = [rest.clone()] if len(rest) else []
        self._count = len(rest)
        self._on_frames(self._decoder.push(tile).cpu().numpy())


@torch.inference_mode()
def roll(
    inputs: CaseInputs,
    plan: PassPlan,
    *,
    backbone: Backbone,
    module: nn.Module,
    device: torch.device,
    on_chunk: Callable[[Tensor], None],
    autocast: torch.dtype | None = None,
) -> Rolled:
    """Samples a chunk by chunk pass and hands every chunk [f,C,H,W] on, fp32 on `device`: the latents
    `generate` gives of the same inputs, bit for bit, without ever holding them all."""
    frames, track, asked = track_span(case_track(inputs, plan.camera), plan, backbone)
    here = replace(
        inputs, anchor_CHW=inputs.anchor_CHW.to(device), text_TD=inputs.text_TD.to(device)
    )
    batch = case_batch(here, frames, track, shared=True).to(device)
    clean = batch.latents_BFCHW
    handed_on = 0.0

    def hand_on(start: int, chunk_BfCHW: Tensor) -> None:
        nonlocal handed_on
        del start
        began = time.perf_counter()
        with torch.autocast(device.type, enabled=False):
            on_chunk(chunk_BfCHW[0])
        handed_on += time.perf_counter() - began

    began = time.perf_counter()
    with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        field = CausalField(
            backbone, module, backbone.conditions(batch), clean, delta_policy=plan.delta_policy
        )
        noise = StartNoise(inputs.case, tuple(clean.shape[1:]), device)
        roll_chunks(
            field,
            noise,
            hand_on,
            frames=frames,
            **chunk_settings(inputs.case, plan, backbone, clean),
        )
    return Rolled(
        latents=frames,
        c2w_N44=track[:asked],
        held_N44=track,
        sampling_s=time.perf_counter() - began - handed_on,
    )
