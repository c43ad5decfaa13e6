"""Distribution matching: move samples along the difference of two scores, a frozen teacher's and
that of a critic that follows the student.

    G = (x0_critic - x0_teacher) / mean_M |x - x0_teacher|,   loss = 1/2 sum M (x - sg[x - G])^2 / sum M

so that d loss / dx = M G / sum M exactly. What is masked out never enters a sum.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from solarwm.nn.precision import widened
from solarwm.nn.random import keyed_generator
from solarwm.objectives.schedules import NUM_TRAIN_TIMESTEPS, score_timesteps

FROM_CONDITIONAL = "conditional"
"""c + s (c - u): s = 0 is no guidance; equals the other form at scale s + 1."""
FROM_UNCONDITIONAL = "unconditional"
"""u + s (c - u): s = 1 is no guidance."""
_SMALLEST_NORM = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingGradient:
    """What distribution matching asks of a sample; all without gradient, fp32."""

    gradient_BFCHW: Tensor
    """G, zero where masked."""
    normaliser_B: Tensor
    """Masked mean of |x - x0_teacher| a sample."""
    replaced_B: Tensor
    """Supervised elements that were not finite and became 0."""


def needs_unconditional(scale: float, convention: str) -> bool:
    """Whether guidance at this scale uses the unconditional branch at all."""
    return scale != (1.0 if convention == FROM_UNCONDITIONAL else 0.0)


def guided(
    conditional: Tensor, unconditional: Tensor | None, scale: float, convention: str
) -> Tensor:
    """Classifier-free guidance in the convention named; the conditional one where none is asked."""
    if unconditional is None or not needs_unconditional(scale, convention):
        return conditional
    start = conditional if convention == FROM_CONDITIONAL else unconditional
    return start + scale * (conditional - unconditional)


@torch.no_grad()
def matching_gradient(
    output_BFCHW: Tensor, critic_clean_BFCHW: Tensor, teacher_clean_BFCHW: Tensor, mask_BF: Tensor
) -> MatchingGradient:
    """The normalised difference of the two estimates of x0, each sample by itself."""
    mask = mask_BF[..., None, None, None].expand_as(output_BFCHW)
    zero = torch.zeros((), dtype=torch.float32, device=output_BFCHW.device)
    teacher = widened(teacher_clean_BFCHW)
    difference = torch.where(mask, widened(critic_clean_BFCHW) - teacher, zero)
    distance = torch.where(mask, (widened(output_BFCHW) - teacher).abs(), zero)
    count_B = mask.flatten(1).sum(-1).clamp(min=1)
    normaliser_B = distance.flatten(1).sum(-1) / count_B
    gradient = difference / normaliser_B.clamp(min=_SMALLEST_NORM)[:, None, None, None, None]
    bad_B = (~torch.isfinite(gradient)).flatten(1).sum(-1)
    return MatchingGradient(
        gradient_BFCHW=torch.nan_to_num(gradient), normaliser_B=normaliser_B, replaced_B=bad_B
    )


def matching_loss(output_BFCHW: Tensor, gradient_BFCHW: Tensor, mask_BF: Tensor) -> Tensor:
    """The surrogate [B] whose gradient in x is M G / sum M, sample by sample."""
    x = widened(output_BFCHW)
    return 0.5 * _masked_mean((x - (x - gradient_BFCHW).detach()).square(), mask_BF)


def critic_loss(
    velocity_BFCHW: Tensor, output_BFCHW: Tensor, noise_BFCHW: Tensor, mask_BF: Tensor
) -> Tensor:
    """Unweighted flow matching [B] on what the student made."""
    mask = mask_BF[..., None, None, None].expand_as(output_BFCHW)
    target = widened(noise_BFCHW) - widened(output_BFCHW)
    error = torch.where(mask, widened(velocity_BFCHW) - target, torch.zeros_like(target))
    return _masked_mean(error.square(), mask_BF)


def score_levels(
    slots: tuple[int, ...],
    *,
    seed: int,
    step: int,
    purpose: str,
    shift_k: float,
    low: float,
    high: float,
) -> Tensor:
    """Noise levels fp32 [B] at which scores are compared: an integer time a sample, shifted, cut to
    [low, high] (raw times)."""
    raw_B = torch.stack(
        [
            torch.randint(
                NUM_TRAIN_TIMESTEPS, (), generator=keyed_generator(seed, purpose, step, slot)
            )
            for slot in slots
        ]
    )
    return score_timesteps(raw_B, shift_k, low, high) / NUM_TRAIN_TIMESTEPS


def _masked_mean(value_BFCHW: Tensor, mask_BF: Tensor) -> Tensor:
    mask = mask_BF[..., None, None, None].expand_as(value_BFCHW)
    kept = torch.where(mask, value_BFCHW, torch.zeros_like(value_BFCHW))
    return kept.flatten(1).sum(-1) / mask.flatten(1).sum(-1).clamp(min=1)
