"""Formula points of the published warm-up and cosine."""

from __future__ import annotations

import math

import pytest

from solarwm.training.schedule import WarmupCosine, due


@pytest.mark.parametrize(
    ("completed", "expected"),
    [(0, 0.0), (1, 0.1), (9, 0.9), (10, 1.0), (60, 0.55), (110, 0.1), (500, 0.1)],
)
def test_factor_rises_linearly_and_falls_as_half_a_cosine(completed: int, expected: float) -> None:
    schedule = WarmupCosine(warmup=10, total=110, min_ratio=0.1)
    assert math.isclose(schedule.factor(completed), expected, abs_tol=1e-12)


def test_it_is_the_factor_that_torch_lambda_lr_would_use() -> None:
    import torch

    schedule = WarmupCosine(warmup=3, total=9, min_ratio=0.2)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=2.0)
    published = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda n: n / 3 if n < 3 else 0.2 + 0.8 * (1 + math.cos(math.pi * min(1, (n - 3) / 6))) / 2,
    )
    for completed in range(12):
        assert math.isclose(optimizer.param_groups[0]["lr"], 2.0 * schedule.factor(completed))
        optimizer.step()
        published.step()


def test_a_run_shorter_than_its_warm_up_ends_inside_it() -> None:
    assert WarmupCosine(warmup=100, total=10, min_ratio=0.1).factor(10) == 0.1


def test_without_warm_up_the_first_update_has_the_full_rate() -> None:
    assert WarmupCosine(warmup=0, total=10, min_ratio=0.1).factor(0) == 1.0


def test_zero_means_never() -> None:
    assert [step for step in range(1, 9) if due(step, 3)] == [3, 6]
    assert not any(due(step, 0) for step in range(1, 9))
