"""From noise to a clip along the velocity: UniPC on the published grid, Euler on the shifted one.

Velocities are canonical (dx/dsigma = eps - x0), so x0 = x - sigma v. With an anchor the first
latent frame is the image: shown clean at sigma 0, its velocity ignored, restored after every step.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from solarwm.errors.types import SolarError
from solarwm.objectives.schedules import NUM_TRAIN_TIMESTEPS, shifted_grid, unipc_grid

Velocity = Callable[..., Tensor]
"""(latents_BFCHW, sigma_BF) to eps - x0; a flow map takes endpoint_BF as third."""
Noise = Callable[[int], Tensor]
"""Fresh noise like the start noise for the level after step `number` (0, 1, ...)."""
StepCallback = Callable[[int, int, Tensor], None]
"""(steps done, steps in all, latents after the step)."""


class Solver(Protocol):
    """One way to integrate the velocity from noise to data."""

    def sample(
        self,
        velocity: Velocity,
        noise_BFCHW: Tensor,
        *,
        num_steps: int,
        shift: float,
        anchor_BCHW: Tensor | None = None,
        fresh_noise: Noise | None = None,
        step_callback: StepCallback | None = None,
    ) -> Tensor:
        """Clean latents like `noise`, fp32, after `num_steps` evaluations. No gradient."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Euler:
    """x <- x + (sigma' - sigma) v on S_k of equal steps from 1 to 0."""

    @torch.no_grad()
    def sample(
        self,
        velocity: Velocity,
        noise_BFCHW: Tensor,
        *,
        num_steps: int,
        shift: float,
        anchor_BCHW: Tensor | None = None,
        fresh_noise: Noise | None = None,
        step_callback: StepCallback | None = None,
    ) -> Tensor:
        """See `Solver.sample`."""
        check_steps(num_steps)
        grid = shifted_grid(num_steps, shift).tolist()
        x = anchored(noise_BFCHW.float(), anchor_BCHW)
        for index in range(num_steps):
            flow = velocity_at(velocity, x, grid[index], anchor_BCHW)
            x = anchored(x + (grid[index + 1] - grid[index]) * flow, anchor_BCHW)
            if step_callback is not None:
                step_callback(index + 1, num_steps, x)
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class UniPC:
    """UniPC of order 2 (B(h) = expm1(h), x0 prediction) with the corrector, on the published grid.

    The grid is S_k of equal steps from 0.999, ending in 0. `truncate_times` tells the model the raw
    time cut to an integer, as published; otherwise it is told the level it is at.
    """

    truncate_times: bool = False

    @torch.no_grad()
    def sample(
        self,
        velocity: Velocity,
        noise_BFCHW: Tensor,
        *,
        num_steps: int,
        shift: float,
        anchor_BCHW: Tensor | None = None,
        fresh_noise: Noise | None = None,
        step_callback: StepCallback | None = None,
    ) -> Tensor:
        """See `Solver.sample`."""
        check_steps(num_steps)
        grid_sigmas, timesteps = unipc_grid(num_steps, shift)
        sigmas = grid_sigmas.tolist()
        told = (
            [float(t) / NUM_TRAIN_TIMESTEPS for t in timesteps] if self.truncate_times else sigmas
        )
        x = anchored(noise_BFCHW.float(), anchor_BCHW)
        state = _Multistep(sigmas=sigmas)
        for index in range(num_steps):
            flow = velocity_at(velocity, x, told[index], anchor_BCHW)
            x = anchored(state.advance(index, x, x - sigmas[index] * flow), anchor_BCHW)
            if step_callback is not None:
                step_callback(index + 1, num_steps, x)
        return x


@dataclass(slots=True, kw_only=True)
class _Multistep:
    """The history of one UniPC run: predictions of x0 and the state before the last predictor."""

    sigmas: list[float]
    predictions: list[Tensor] = field(default_factory=list)
    last: Tensor | None = None
    order: int = 0

    def advance(self, index: int, x: Tensor, clean: Tensor) -> Tensor:
        """Correct `x` with the new prediction of x0, then predict the next state."""
        if self.last is not None:
            x = self._correct(index, clean)
        self.predictions = [*self.predictions[-1:], clean]
        remaining = len(self.sigmas) - 1 - index
        self.order = min(2, remaining, len(self.predictions))
        self.last = x
        return self._predict(index, x)

    def _predict(self, index: int, x: Tensor) -> Tensor:
        step = _Step.between(self.sigmas[index], self.sigmas[index + 1])
        newest = self.predictions[-1]
        result = step.ratio * x - step.alpha * step.phi_1 * newest
        if self.order == 2:
            ratio = step.relative(self.sigmas[index - 1])
            slope = (self.predictions[-2] - newest) / ratio
            result = result - step.alpha * step.phi_1 * 0.5 * slope
        return result

    def _correct(self, index: int, clean: Tensor) -> Tensor:
        assert self.last is not None
        step = _Step.between(self.sigmas[index - 1], self.sigmas[index])
        newest = self.predictions[-1]
        result = step.ratio * self.last - step.alpha * step.phi_1 * newest
        change = clean - newest
        if self.order == 1:
            return result - step.alpha * step.phi_1 * 0.5 * change
        ratio = step.relative(self.sigmas[index - 2])
        slope = (self.predictions[-2] - newest) / ratio
        b_1 = step.phi_2 / step.phi_1
        b_2 = 2 * step.phi_3 / step.phi_1
        rho_1 = (b_1 - b_2) / (1 - ratio)
        rho_2 = b_1 - rho_1
        return result - step.alpha * step.phi_1 * (rho_1 * slope + rho_2 * change)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Numbers of one step from level `start` to `end`, lambda = log((1 - sigma) / sigma)."""

    start: float
    span: float
    alpha: float
    ratio: float
    phi_1: float
    phi_2: float
    phi_3: float

    @classmethod
    def between(cls, start: float, end: float) -> _Step:
        alpha = 1.0 - end
        if end == 0.0:
            return cls(
                start=start,
                span=math.inf,
                alpha=alpha,
                ratio=0.0,
                phi_1=-1.0,
                phi_2=-1.0,
                phi_3=-0.5,
            )
        span = _half_log_snr(end) - _half_log_snr(start)
        phi_1 = math.expm1(-span)
        phi_2 = phi_1 / -span - 1.0
        phi_3 = phi_2 / -span - 0.5
        return cls(
            start=start,
            span=span,
            alpha=alpha,
            ratio=end / start,
            phi_1=phi_1,
            phi_2=phi_2,
            phi_3=phi_3,
        )

    def relative(self, earlier: float) -> float:
        """(lambda_earlier - lambda_start) / span."""
        return (_half_log_snr(earlier) - _half_log_snr(self.start)) / self.span


def _half_log_snr(sigma: float) -> float:
    if sigma >= 1.0:
        raise ValueError("a UniPC grid starts below sigma 1")
    return math.log(1.0 - sigma) - math.log(sigma)


SOLVERS = ("unipc", "euler", "flowmap", "self_forcing")


def create(name: str, *, numerics: str = "corrected", levels: Sequence[float] = ()) -> Solver:
    """The solver a validation or inference pass names; `published` numerics round the times told.

    `levels` are the noise levels a few-step student was trained at.
    """
    from solarwm.inference.few_step import FewStep
    from solarwm.inference.flow_map import FlowMapJumps

    if name == "unipc":
        return UniPC(truncate_times=numerics == "published")
    if name == "euler":
        return Euler()
    if name == "flowmap":
        return FlowMapJumps()
    if name == "self_forcing":
        return FewStep(levels=tuple(levels), round_times=numerics == "published")
    raise SolarError(
        "inference.unknown-solver",
        f"there is no solver {name!r}",
        why=f"This route samples with one of: {', '.join(SOLVERS)}.",
        fixes=[f"solver: {choice}" for choice in SOLVERS],
    )


def check_steps(num_steps: int) -> None:
    """Refuse (`ValueError`) to sample in no step."""
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, not {num_steps}")


def anchored(x: Tensor, anchor_BCHW: Tensor | None) -> Tensor:
    """`x` with its first frame replaced by the anchor, where there is one."""
    if anchor_BCHW is None:
        return x
    return torch.cat([anchor_BCHW.to(x)[:, None], x[:, 1:]], dim=1)


def velocity_at(
    velocity: Velocity,
    x: Tensor,
    sigma: float,
    anchor_BCHW: Tensor | None,
    endpoint: float | None = None,
) -> Tensor:
    """The velocity with all frames at one noise level, fp32; 0 where a frame is given."""
    levels = [sigma] if endpoint is None else [sigma, endpoint]
    told = []
    for level in levels:
        level_BF = torch.full(x.shape[:2], level, dtype=torch.float32, device=x.device)
        if anchor_BCHW is not None:
            level_BF[:, 0] = 0.0
        told.append(level_BF)
    flow = velocity(x, *told).float()
    if anchor_BCHW is not None:
        flow = torch.cat([torch.zeros_like(flow[:, :1]), flow[:, 1:]], dim=1)
    return flow
