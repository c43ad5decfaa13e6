"""Jumps along a trained flow map: x <- x - (sigma - rho) u(x, sigma, rho).

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from solarwm.inference.solvers import (
    Noise,
    StepCallback,
    Velocity,
    anchored,
    check_steps,
    velocity_at,
)
from solarwm.objectives.schedules import shifted_grid


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMapJumps:
    """One jump between neighbours of S_k of equal steps from 1 to exactly 0 (grid in float64)."""

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
            start, end = grid[index], grid[index + 1]
            flow = velocity_at(velocity, x, start, anchor_BCHW, end)
            x = anchored(x - (start - end) * flow, anchor_BCHW)
            if step_callback is not None:
                step_callback(index + 1, num_steps, x)
        return x
