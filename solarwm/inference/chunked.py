"""Generation chunk by chunk: each chunk is sampled by a solver given what was committed before it.

Shapes: B batch, F latent frames, f frames of a chunk, C latent channels, H W latent height and
width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from solarwm.inference.causal_field import CausalField
from solarwm.inference.solvers import Solver

ChunkCallback = Callable[[int, Tensor], None]
"""(first frame of a finished chunk, the chunk)."""


@torch.no_grad()
def generate_chunks(
    field: CausalField,
    noise_BFCHW: Tensor,
    *,
    solver: Solver,
    num_steps: int,
    shift: float,
    chunk_frames: int,
    anchor_BCHW: Tensor | None,
    generator: torch.Generator,
    context_sigma: float = 0.0,
    recall_history: bool = False,
    on_chunk: ChunkCallback = lambda start, chunk: None,
) -> Tensor:
    """Clean latents like `noise`, fp32.

    `generator` (on the CPU) draws the fresh noise a few-step student needs, in order of use.
    `recall_history` encodes the window anew before every chunk, as published in Stage1; else
    finished chunks are committed once. Finished chunks enter the history at `context_sigma`.
    Nothing is committed after the last chunk.
    """
    frames = noise_BFCHW.shape[1]
    latents = noise_BFCHW.new_empty(noise_BFCHW.shape, dtype=torch.float32)
    for start in range(0, frames, chunk_frames):
        stop = start + chunk_frames
        if recall_history:
            field.recall(latents, start, sigma=context_sigma)

        latents[:, start:stop] = sample_chunk(
            field,
            noise_BFCHW[:, start:stop],
            start,
            solver=solver,
            num_steps=num_steps,
            shift=shift,
            anchor_BCHW=anchor_BCHW if start == 0 else None,
            generator=generator,
        )
        if stop < frames and not recall_history:
            field.commit(latents[:, start:stop], start, sigma=context_sigma)
        on_chunk(start, latents[:, start:stop])
    return latents


def sample_chunk(
    field: CausalField,
    noise_BfCHW: Tensor,
    start: int,
    *,
    solver: Solver,
    num_steps: int,
    shift: float,
    anchor_BCHW: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """The chunk that begins at latent frame `start`, given what the field was committed; like its
    start noise. `generator` as in `generate_chunks`."""

    def velocity(x: Tensor, sigma_Bf: Tensor, endpoint_Bf: Tensor | None = None) -> Tensor:
        if endpoint_Bf is None:
            return field.chunk(x, sigma_Bf, start)
        return field.jump(x, sigma_Bf, endpoint_Bf, start)

    def fresh(number: int) -> Tensor:
        del number
        return torch.randn(noise_BfCHW.shape, generator=generator).to(noise_BfCHW)

    return solver.sample(
        velocity,
        noise_BfCHW,
        num_steps=num_steps,
        shift=shift,
        anchor_BCHW=anchor_BCHW,
        fresh_noise=fresh,
    )
