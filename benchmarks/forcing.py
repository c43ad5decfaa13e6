"""One teacher-forced training step: against the bidirectional step of the same clip, and against a dense mask.

All three run the same code on the same clean latents: forward, mean squared error of the noisy half,
backward and AdamW. Teacher forcing has twice the tokens. The dense mask is the naive way: one boolean
matrix over `[clean | noisy]` given to SDPA. Outputs and gradients of both ways are compared first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import process_time

import torch
from torch import Tensor

from benchmarks.ratio import Ratio, measure
from benchmarks.step import SIZES, Size, inputs, our_model
from solarwm.backbones.wan22_core.model import WanTransformer
from solarwm.nn.attention import attend
from solarwm.nn.cache import CleanContext
from solarwm.nn.chunks import ChunkWindow
from solarwm.nn.layouts import ForcedLayout, Projected, forced_layout
from solarwm.training.optim import adamw

WINDOW = ChunkWindow(chunk_frames=3, prior_chunks=5, slot_frames=21)
FRAMES = 21
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class DenseLayout:
    """The same layout with its pairs written out token by token."""

    layout: ForcedLayout
    mask_LL: Tensor
    text_memory: None = None

    @property
    def out_frames(self) -> int:
        """The noisy half."""
        return self.layout.out_frames

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor:
        """Attention of both halves under the mask; in the last layer of the noisy half."""
        del layer
        query, key, value = self.layout.seen(projected)
        mask, half = self.mask_LL, query.shape[1] // 2
        first = half if last else 0
        out = attend(query[:, first:], key, value, mask[first:])
        return self.layout.unseen(out, last=last)


def dense_mask(window: ChunkWindow, frames: int, chunk_tokens: int) -> Tensor:
    """Boolean [2L,2L] of `[clean | noisy]`."""
    pairs = window.forced_pairs(window.chunks(frames))
    allowed = torch.zeros(len(pairs), len(pairs), dtype=torch.bool)
    for query, seen in enumerate(pairs):
        allowed[query, list(seen)] = True
    return allowed.repeat_interleave(chunk_tokens, 0).repeat_interleave(chunk_tokens, 1)


def rows(*, rounds: int) -> list[Ratio]:
    """Both ratios of the tiny model."""
    size = replace(SIZES[0], frames=FRAMES)
    model, data = our_model(size), inputs(size)
    optimizer = adamw(model.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    noisy, time = data.latents_BFCHW, data.time_BF
    clean = torch.randn(noisy.shape, generator=torch.Generator().manual_seed(4))
    both = torch.cat([clean, noisy], dim=1)
    times = torch.cat([torch.zeros_like(time), time], dim=1)
    grid = model.grid(noisy)
    mask = dense_mask(WINDOW, FRAMES, WINDOW.chunk_frames * grid[1] * grid[2])

    def layout() -> ForcedLayout:
        context = CleanContext(latents_BFCHW=clean, sigma_BF=torch.zeros_like(time), shared=False)
        return forced_layout(
            context,
            window=WINDOW,
            grid=grid,
            head_dim=size.dims.head_dim,
            camera=data.camera,
            flex=False,
        )

    def step(forward: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            (forward() - data.target_BFCHW).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    def forced() -> Tensor:
        return model(both, times, data.text_BTD, layout=layout())

    def dense() -> Tensor:
        return model(both, times, data.text_BTD, layout=DenseLayout(layout(), mask))

    def bidirectional() -> Tensor:
        return model(noisy, time, data.text_BTD, data.camera)

    print(f"teacher forcing: {_difference(model, size, forced, dense):.1e} off the dense mask")
    return [
        measure(
            f"teacher-forced step {size.name}, {FRAMES} latents",
            step(forced),
            step(bidirectional),
            anchor_name="our bidirectional step, half the tokens",
            target=2.3,
            rounds=rounds,
            clock=process_time,
        ),
        measure(
            f"teacher-forced step {size.name}, {FRAMES} latents, chunk by chunk",
            step(forced),
            step(dense),
            anchor_name="the same step under a dense mask",
            target=1 / 1.5,
            rounds=rounds,
            clock=process_time,
        ),
    ]


def _difference(
    model: WanTransformer, size: Size, ours: Callable[[], Tensor], naive: Callable[[], Tensor]
) -> float:
    gradients, outs = [], []
    for forward in (ours, naive):
        out = forward()
        out.square().mean().backward()
        outs.append(out.detach())
        gradients.append([p.grad.clone() for p in model.parameters()])  # type: ignore[union-attr]
        model.zero_grad()
    worst = float((outs[0] - outs[1]).abs().max())
    for a, b in zip(*gradients, strict=True):
        worst = max(worst, float((a - b).norm() / b.norm().clamp(min=1e-6)))
    if worst > TOLERANCE:
        raise RuntimeError(f"{size.name}: chunked and dense attention differ by {worst}")
    return worst
