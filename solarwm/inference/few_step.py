"""Few-step sampling of a self-forced student: estimate x0, noise it afresh to the next level.

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
from solarwm.objectives.schedules import NUM_TRAIN_TIMESTEPS, shifted_grid, time_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FewStep:
    """The rollout of self-gradient forcing without exit, at the levels of training; with another
    number of steps at those of the flow-map grid.

    `round_times` tells the model the raw time in bf16 and takes x0 at the nearest table entry, as
    published.
    """

    levels: tuple[float, ...] = ()
    round_times: bool = False

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
        """See `Solver.sample`; needs `fresh_noise` for more than one step."""
        check_steps(num_steps)
        levels = list(self.levels)
        if len(levels) != num_steps:
            levels = shifted_grid(num_steps, shift).tolist()[:-1]
        x = anchored(noise_BFCHW.float(), anchor_BCHW)
        for index, level in enumerate(levels):
            told, applied = self._rounded(level, shift) if self.round_times else (level, level)
            flow = velocity_at(velocity, x, told, anchor_BCHW)
            clean = (x.double() - applied * flow.double()).float()
            x = anchored(clean, anchor_BCHW)
            if index + 1 < num_steps:
                if fresh_noise is None:
                    raise ValueError("a few-step student needs fresh noise between its steps")
                following = levels[index + 1]
                noise = fresh_noise(index).to(x)
                x = anchored((1 - following) * x + following * noise, anchor_BCHW)
            if step_callback is not None:
                step_callback(index + 1, num_steps, x)
        return x

    @staticmethod
    def _rounded(level: float, shift: float) -> tuple[float, float]:
        """(level the model is told, level x0 is taken at) of the published inference."""
        raw = torch.tensor([level * NUM_TRAIN_TIMESTEPS]).bfloat16().float()
        table = time_table(shift)
        return float(raw) / NUM_TRAIN_TIMESTEPS, float(table.sigmas_N[table.nearest(raw)])
