"""The seam every objective fills: a velocity function and a batch to losses.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from solarwm.data.tensors import LatentBatch

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(latents_BFCHW, sigma_BF) to the canonical velocity eps - x0, fp32 [B,F,C,H,W]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveResult:
    """Losses of one microbatch."""

    per_sample_B: Tensor
    """One loss a sample, with gradient. The stage sums them over the whole optimizer step and
    divides by the global batch, so the gradient is the same on every topology."""
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Detached values [B] or [] for the event stream; [B] values are averaged over samples."""


class Objective(Protocol):
    """One training rule for one role."""

    loss_names: tuple[str, ...]

    def losses(
        self, velocity: Velocity, batch: LatentBatch, *, seed: int, step: int
    ) -> ObjectiveResult:
        """Losses of a batch at optimizer step `step` (steps completed so far).

        Every draw is keyed by (seed, purpose, step, the row's slot); no collective is made.
        """
        ...
