from __future__ import annotations

import math

import pytest
import torch

from solarwm.objectives.schedules import logit_normal_sigmas, shifted_grid, time_table, unipc_grid


@pytest.mark.parametrize("k", [1.0, 3.0, 5.0, 12.0])
def test_weights_are_nonnegative_with_mean_one_and_nothing_at_full_noise(k):
    table = time_table(k)
    assert (table.weights_N >= 0).all()
    assert table.weights_N.double().mean().item() == pytest.approx(1.0, abs=1e-6)
    assert table.weights_N.min() == 0
    assert table.timesteps_N[0] == 1000


def test_nearest_takes_the_first_of_a_tie_and_keeps_the_shape():
    table = time_table(1.0)
    query = torch.tensor([[999.5, 0.0], [500.2, 1000.0]])
    assert table.nearest(query).tolist() == [[0, 999], [500, 0]]


def test_grids_run_down_to_exactly_zero():
    for grid in (shifted_grid(7, 5.0), unipc_grid(7, 5.0)[0].double()):
        assert len(grid) == 8
        assert grid[-1] == 0
        assert (grid[1:] < grid[:-1]).all()


def test_logit_normal_levels_follow_the_token_count():
    draws = torch.randn(20000), torch.rand(20000), torch.full((20000,), 0.5)
    few, many = (logit_normal_sigmas(*draws, num_tokens=n) for n in (1024, 7680))
    assert few.min() >= 0
    assert many.max() <= 1
    low, high = (1 / (1 + math.exp(-(0.95 + q))) for q in (-2.5758, 3.0902))
    median = (1 / (1 + math.exp(-0.95)) - low) / (high - low)
    assert few.median().item() == pytest.approx(median, abs=0.02)
    assert many.median() > few.median()
    uniform = logit_normal_sigmas(draws[0], draws[1], torch.zeros(20000), num_tokens=1024)
    torch.testing.assert_close(uniform, 0.999 * draws[1] + 1e-3)
