"""The seam every objective fills: a velocity function and a batch to losses.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, I chosen samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from solarwm.data.tensors import LatentBatch

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(latents_BFCHW, sigma_BF) to the canonical velocity eps - x0, fp32 [B,F,C,H,W]."""


class FlowMap(Protocol):
    """A velocity that also knows where it is to arrive: u(x, sigma, rho) = (x - X_rho) / (sigma -
    rho), fp32 [B,F,C,H,W]; at rho = sigma the velocity itself."""

    def __call__(self, latents_BFCHW: Tensor, sigma_BF: Tensor, endpoint_BF: Tensor, /) -> Tensor:
        """All samples of the batch, with gradient."""
        ...

    def again(
        self, latents_IFCHW: Tensor, sigma_IF: Tensor, endpoint_IF: Tensor, index_I: Tensor
    ) -> Tensor:
        """Only the samples `index`, which may repeat, after the call with gradient. No gradient."""
        ...

    def unconditional(self, latents_BFCHW: Tensor, sigma_BF: Tensor, endpoint_BF: Tensor) -> Tensor:
        """All samples under the negative prompt. No gradient."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a microbatch must know of the ranks and steps around it."""

    memory: Mapping[str, float] = field(default_factory=dict)
    """What the objective kept of earlier steps, equal on all ranks."""
    peer_slots: tuple[int, ...] = ()
    """Slots of the same microbatch on all ranks whose forwards are collective, own ones included;
    empty where ranks forward independently. All of them must make the same number of forwards."""
    gather: Callable[[Tensor], Tensor] | None = None
    """[B] to [ranks, B] over the ranks of the same microbatch; None with one rank. Collective."""


ALONE = Surroundings()


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
    """Metrics [B] that are summed over the global batch of a step."""

    def losses(
        self, velocity: Any, batch: LatentBatch, *, seed: int, step: int, around: Surroundings
    ) -> ObjectiveResult:
        """Losses of a batch at optimizer step `step` (steps completed so far).

        Every draw is keyed by (seed, purpose, step, the row's slot); no collective is made but
        `around.gather` and those of the velocity.
        """
        ...

    def report(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        """The named losses of `samples` samples from the sums over them of `loss_names`."""
        ...

    def remember(self, sums: Mapping[str, float], memory: Mapping[str, float]) -> dict[str, float]:
        """What to keep for the next step, from the sums over the global batch of this one."""
        ...


def means(sums: Mapping[str, float], samples: int) -> dict[str, float]:
    """Every sum divided by the number of samples."""
    return {name: total / samples for name, total in sums.items()}
