from __future__ import annotations

import pytest
import torch

from solarwm.nn.time import TimeCoordinate, shift

WAN = TimeCoordinate.named("sigma", scale=1000.0)
H3 = TimeCoordinate.named("reverse", scale=1.0)


def test_shifts_compose_by_multiplication():
    u = torch.rand(64, dtype=torch.float64)
    torch.testing.assert_close(shift(shift(u, 3.0), 4.0), shift(u, 12.0), atol=1e-14, rtol=0)


def test_mirrored_levels_shift_by_the_inverse():
    u = torch.rand(64, dtype=torch.float64)
    torch.testing.assert_close(shift(1 - u, 5.0), 1 - shift(u, 0.2), atol=1e-14, rtol=0)


def test_shift_one_returns_its_input():
    u = torch.rand(8)
    assert shift(u, 1.0) is u


@pytest.mark.parametrize("k", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_shift_is_refused(k):
    with pytest.raises(ValueError, match="positive and finite"):
        shift(0.5, k)


@pytest.mark.parametrize("time", [WAN, H3])
def test_native_time_and_velocity_go_there_and_back(time):
    sigma = torch.rand(16, dtype=torch.float64)
    torch.testing.assert_close(time.from_native(time.to_native(sigma)), sigma, atol=1e-14, rtol=0)
    v = torch.randn(16)
    assert torch.equal(time.velocity_from_model(time.model_from_velocity(v)), v)
    assert time.to_native(0.0) == time.clean_native


def test_reverse_time_predicts_the_opposite_of_the_same_path():
    x0, eps, sigma = 2.0, -1.0, 0.3
    t = H3.to_native(sigma)
    assert t * x0 + (1 - t) * eps == pytest.approx((1 - sigma) * x0 + sigma * eps)
    native = torch.tensor(x0 - eps)
    assert H3.velocity_from_model(native).item() == eps - x0


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="unknown time convention"):
        TimeCoordinate.named("cosine", scale=1.0)
