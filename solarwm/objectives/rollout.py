"""Few-step rollouts of a causal student on its own outputs, chunk by chunk.

Every chunk starts from noise and is denoised over falling noise levels: estimate x0, noise it
afresh to the next level. At the exit step the estimate is kept: it is committed as the history of
the next chunks, and the noisy input it was made from is recorded, so that one parallel forward over
all chunks can make the same estimate again with gradient.

Shapes: B batch, F latent frames, f frames of a chunk, C latent channels, H W latent height and
width, S denoising steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from solarwm.nn.random import keyed_generator
from solarwm.objectives.flow_matching import clean_from_velocity, interpolate


class CausalStudent(Protocol):
    """The velocity of a causal model, one chunk at a time or all at once."""

    def chunk(self, latents_BfCHW: Tensor, sigma_Bf: Tensor, start: int) -> Tensor:
        """Velocity of the frames from `start` on, given what was committed. No gradient."""
        ...

    def commit(self, clean_BfCHW: Tensor, start: int) -> None:
        """Make finished frames the history of the next chunks. No gradient."""
        ...

    def replay(self, latents_BFCHW: Tensor, sigma_BF: Tensor, clean_BFCHW: Tensor) -> Tensor:
        """Velocity of all chunks at once, each given the `clean` chunks before it. The clean half
        is encoded again, so gradients reach the weights through it too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What a rollout leaves; all without gradient."""

    inputs_BFCHW: Tensor
    """Every chunk as it entered its exit step."""
    sigma_BF: Tensor
    """Noise level of the inputs; 0 where a frame is given."""
    committed_BFCHW: Tensor
    """The estimate of x0 at the exit step: history, and a sample of the student."""
    forwards: int
    """Forwards of the student that were made, commits included."""


def exit_steps(
    slots: tuple[int, ...], *, seed: int, step: int, purpose: str, num_steps: int, scope: str
) -> Tensor:
    """Exit step int64 [B] of each slot: its own draw, or with scope `step` one for all."""
    keys = slots if scope == "slot" else (0,) * len(slots)
    return torch.stack(
        [
            torch.randint(num_steps, (), generator=keyed_generator(seed, purpose, step, key))
            for key in keys
        ]
    )


@torch.no_grad()
def roll_out(
    student: CausalStudent,
    anchor_BCHW: Tensor | None,
    noise_SBFCHW: Sequence[Tensor],
    *,
    levels: Sequence[float],
    exit_B: Tensor,
    last_step: int,
    chunk_frames: int,
) -> Rollout:
    """Roll out to each sample's exit step.

    `noise` holds the start noise and one fresh noise for each later step. All samples run to
    `last_step`, the largest exit among the ranks whose forwards are collective, and no further.
    After the last chunk nothing is committed. With an anchor the first frame is given: clean, at
    level 0.
    """
    start_noise = noise_SBFCHW[0]
    frames = start_noise.shape[1]
    exit_B = exit_B.to(start_noise.device)
    inputs, committed = torch.empty_like(start_noise), torch.empty_like(start_noise)
    sigma_BF = torch.tensor(levels, device=start_noise.device)[exit_B][:, None].repeat(1, frames)
    if anchor_BCHW is not None:
        sigma_BF[:, 0] = 0.0
    forwards = 0
    for start in range(0, frames, chunk_frames):
        part = slice(start, start + chunk_frames)
        anchor = anchor_BCHW if start == 0 else None
        x = anchored(start_noise[:, part], anchor)
        for number in range(last_step + 1):
            level_Bf = torch.full(x.shape[:2], levels[number], device=x.device)
            if anchor is not None:
                level_Bf[:, 0] = 0.0
            clean = clean_from_velocity(x, student.chunk(x, level_Bf, start), level_Bf)
            clean = anchored(clean.to(x.dtype), anchor)
            forwards += 1
            chosen = (exit_B == number)[:, None, None, None, None]
            inputs[:, part] = torch.where(chosen, x, inputs[:, part])
            committed[:, part] = torch.where(chosen, clean, committed[:, part])
            if number < last_step:
                next_Bf = torch.full_like(level_Bf, levels[number + 1])
                x = anchored(interpolate(clean, noise_SBFCHW[number + 1][:, part], next_Bf), anchor)
        if start + chunk_frames < frames:
            student.commit(committed[:, part], start)
            forwards += 1
    return Rollout(
        inputs_BFCHW=inputs, sigma_BF=sigma_BF, committed_BFCHW=committed, forwards=forwards
    )


def replay(student: CausalStudent, rollout: Rollout, anchor_BCHW: Tensor | None) -> Tensor:
    """The student's x0 of all chunks from one forward, with gradient in its weights alone."""
    velocity = student.replay(rollout.inputs_BFCHW, rollout.sigma_BF, rollout.committed_BFCHW)
    clean = clean_from_velocity(rollout.inputs_BFCHW, velocity, rollout.sigma_BF)
    return anchored(clean, anchor_BCHW)


def anchored(x_BFCHW: Tensor, anchor_BCHW: Tensor | None) -> Tensor:
    """`x` with its first frame replaced by the anchor, where there is one."""
    if anchor_BCHW is None:
        return x_BFCHW
    return torch.cat([anchor_BCHW.to(x_BFCHW)[:, None], x_BFCHW[:, 1:]], dim=1)
