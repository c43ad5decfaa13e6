"""Noise levels and loss weights shared by the objectives and the solvers.

The Wan table: u_i = 1 - i / N, i = 0 .. N - 1, sigma_i = S_k(u_i), t_i = N sigma_i; zero is not in
it. Weights: y_i = exp(-2 ((t_i - N / 2) / N)^2), minus the smallest, scaled to mean 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from solarwm.nn.time import shift

NUM_TRAIN_TIMESTEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeTable:
    """The levels a Wan objective draws from, fp32 [N], largest first."""

    sigmas_N: Tensor
    timesteps_N: Tensor
    weights_N: Tensor

    def nearest(self, timesteps: Tensor) -> Tensor:
        """Index of the nearest table entry of raw times, the first on ties; any shape."""
        distance = (self.timesteps_N - timesteps.float().reshape(-1, 1)).abs()
        return distance.argmin(dim=1).reshape(timesteps.shape)


@lru_cache(maxsize=8)
def time_table(shift_k: float, num_steps: int = NUM_TRAIN_TIMESTEPS) -> TimeTable:
    """The table of one shift, on the CPU."""
    levels = torch.linspace(1.0, 0.0, num_steps + 1)[:-1]
    sigmas = shift(levels, shift_k)
    timesteps = sigmas * num_steps
    bell = torch.exp(-2 * ((timesteps - num_steps / 2) / num_steps) ** 2)
    bell = bell - bell.min()
    return TimeTable(
        sigmas_N=sigmas, timesteps_N=timesteps, weights_N=bell * (num_steps / bell.sum())
    )


def unipc_grid(num_steps: int, shift_k: float) -> tuple[Tensor, Tensor]:
    """(sigmas fp32 [n+1] ending in 0, integer raw times [n] cut towards zero).

    Base levels run from 0.999 to 0, the last left out, then the shift.
    """
    base = torch.linspace(0.999, 0.0, num_steps + 1, dtype=torch.float64)[:-1]
    sigmas = shift(base, shift_k)
    timesteps = (sigmas * NUM_TRAIN_TIMESTEPS).to(torch.int64)
    return torch.cat([sigmas, sigmas.new_zeros(1)]).float(), timesteps


def shifted_grid(num_steps: int, shift_k: float) -> Tensor:
    """Sigmas float64 [n+1] from 1 to exactly 0: S_k of equal steps."""
    return shift(torch.linspace(1.0, 0.0, num_steps + 1, dtype=torch.float64), shift_k)


def warped_timesteps(labels: tuple[int, ...], shift_k: float) -> Tensor:
    """Raw times fp32 of denoising labels: the table with 0 appended, entry N - label."""
    table = torch.cat([time_table(shift_k).timesteps_N, torch.zeros(1)])
    return table[NUM_TRAIN_TIMESTEPS - torch.tensor(labels)]


def score_timesteps(raw: Tensor, shift_k: float, low: float = 20.0, high: float = 980.0) -> Tensor:
    """Raw score times of integers 0..N-1: shifted, back to raw, clamped to [low, high], fp32."""
    level = shift(raw.float() / NUM_TRAIN_TIMESTEPS, shift_k)
    return (level * NUM_TRAIN_TIMESTEPS).clamp(low, high)


def logit_normal_sigmas(
    normal: Tensor,
    uniform: Tensor,
    choice: Tensor,
    *,
    num_tokens: int,
    std: float = 1.0,
    eps: float = 1e-3,
    uniform_probability: float = 0.1,
) -> Tensor:
    """Noise levels of the shifted logit-normal law from three draws of the same shape.

    The mean rises linearly with the tokens: 0.95 at 1024, 2.05 at 4096. The sigmoid is stretched
    between its 0.5 % and 99.9 % points, reflected below `eps`, and replaced by a uniform level in
    [eps, 1] where `choice` is at most `uniform_probability`.
    """
    slope = (2.05 - 0.95) / (4096 - 1024)
    mean = 0.95 + slope * (num_tokens - 1024)
    low, high = (1 / (1 + math.exp(-(mean + quantile * std))) for quantile in (-2.5758, 3.0902))
    level = (torch.sigmoid(normal * std + mean) - low) / (high - low)
    level = torch.where(level < eps, 2 * eps - level, level).clamp(0, 1)
    return torch.where(choice <= uniform_probability, (1 - eps) * uniform + eps, level)
