"""Generation chunk by chunk: each chunk is sampled by a solver given what was committed before it.

Shapes: B batch, F latent frames, f frames of a chunk, C latent channels, H W latent height and
width.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from solarwm.inference.causal_field import CausalField
from solarwm.inference.solvers import Solver

ChunkCallback = Callable[[int, Tensor], None]
"""(first frame of a finished chunk, the chunk)."""


NoiseSource = Callable[[int, int], Tensor]
"""Start noise [B,f,C,H,W] of the latent frames start..stop-1; asked for in order."""


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
    """Clean latents like `noise`, fp32: `roll_chunks` with all of them kept."""
    latents = noise_BFCHW.new_empty(noise_BFCHW.shape, dtype=torch.float32)

    def keep(start: int, chunk: Tensor) -> None:
        latents[:, start : start + chunk.shape[1]] = chunk
        on_chunk(start, latents[:, start : start + chunk.shape[1]])

    roll_chunks(
        field,
        lambda start, stop: noise_BFCHW[:, start:stop],
        keep,
        frames=noise_BFCHW.shape[1],
        solver=solver,
        num_steps=num_steps,
        shift=shift,
        chunk_frames=chunk_frames,
        anchor_BCHW=anchor_BCHW,
        generator=generator,
        context_sigma=context_sigma,
        recall_history=recall_history,
    )
    return latents


@torch.no_grad()
def roll_chunks(
    field: CausalField,
    noise: NoiseSource,
    on_chunk: ChunkCallback,
    *,
    frames: int,
    solver: Solver,
    num_steps: int,
    shift: float,
    chunk_frames: int,
    anchor_BCHW: Tensor | None,
    generator: torch.Generator,
    context_sigma: float = 0.0,
    recall_history: bool = False,
) -> None:
    """Samples `frames` latent frames and hands every chunk on, clean and fp32, as it is finished. What
    is kept does not grow with `frames` where the window does not.

    `generator` (on the CPU) draws the fresh noise a few-step student needs, in order of use.
    `recall_history` encodes the window anew before every chunk, as published in Stage1; else
    finished chunks are committed once. Finished chunks enter the history at `context_sigma`.
    Nothing is committed after the last chunk.
    """
    recalled: deque[Tensor] = deque(maxlen=field.prior_chunks)
    for start in range(0, frames, chunk_frames):
        stop = start + chunk_frames
        if recalled:
            field.anew(torch.cat([*recalled], dim=1), start, sigma=context_sigma)
        chunk = sample_chunk(
            field,
            noise(start, stop),
            start,
            solver=solver,
            num_steps=num_steps,
            shift=shift,
            anchor_BCHW=anchor_BCHW if start == 0 else None,
            generator=generator,
        ).float()
        if recall_history:
            recalled.append(chunk)
        elif stop < frames:
            field.commit(chunk, start, sigma=context_sigma)
        on_chunk(start, chunk)


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
