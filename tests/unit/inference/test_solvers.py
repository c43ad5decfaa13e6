from __future__ import annotations

import pytest
import torch

from solarwm.errors.types import SolarError
from solarwm.inference.solvers import Euler, UniPC, create
from solarwm.objectives.schedules import unipc_grid

MEAN, WIDTH = 0.4, 0.5


def gaussian_velocity(x, sigma_BF):
    level = sigma_BF[..., None, None, None]
    variance = (1 - level) ** 2 * WIDTH**2 + level**2
    return -MEAN + (level - (1 - level) * WIDTH**2) / variance * (x - (1 - level) * MEAN)


def noise():
    return torch.randn(2, 3, 4, 2, 2, generator=torch.Generator().manual_seed(0))


def library_run(x, num_steps, shift):
    """diffusers' scheduler with the grid put in place of its own."""
    from diffusers import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True)
    scheduler.set_timesteps(num_steps)
    sigmas, timesteps = unipc_grid(num_steps, shift)
    scheduler.sigmas, scheduler.timesteps = sigmas, timesteps
    for t in timesteps:
        sigma_BF = torch.full(x.shape[:2], t.item() / 1000)
        x = scheduler.step(gaussian_velocity(x, sigma_BF), t, x, return_dict=False)[0]
    return x


@pytest.mark.parametrize("num_steps", [1, 2, 3, 5, 12])
def test_unipc_equals_the_library_scheduler_on_this_grid(num_steps):
    ours = UniPC(truncate_times=True).sample(
        gaussian_velocity, noise(), num_steps=num_steps, shift=5.0
    )
    torch.testing.assert_close(ours, library_run(noise(), num_steps, 5.0), atol=2e-5, rtol=1e-4)


def test_both_solvers_converge_to_the_exact_map():
    exact = MEAN + WIDTH * noise()
    for solver, steps, tolerance in ((UniPC(), 400, 1e-2), (Euler(), 1000, 1e-2)):
        out = solver.sample(gaussian_velocity, noise(), num_steps=steps, shift=5.0)
        torch.testing.assert_close(out, exact, atol=tolerance, rtol=0)


@pytest.mark.parametrize("solver", [UniPC(), Euler()])
def test_one_step_is_exact_on_straight_paths(solver):
    target = torch.randn(2, 3, 4, 2, 2)

    def velocity(x, sigma_BF):
        return (x - target) / sigma_BF[..., None, None, None]

    out = solver.sample(velocity, noise(), num_steps=1, shift=3.0)
    torch.testing.assert_close(out, target, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("solver", [UniPC(), Euler()])
def test_the_anchor_stays_clean_and_is_shown_at_time_zero(solver):
    anchor, calls, steps = torch.randn(2, 4, 2, 2), [], []

    def velocity(x, sigma_BF):
        assert torch.equal(x[:, 0], anchor)
        calls.append(sigma_BF)
        return torch.full_like(x, float("nan")).where(
            torch.arange(3)[None, :, None, None, None] == 0, torch.ones_like(x)
        )

    out = solver.sample(
        velocity,
        noise(),
        num_steps=4,
        shift=5.0,
        anchor_BCHW=anchor,
        step_callback=lambda done, total, x: steps.append((done, total)),
    )
    assert torch.equal(out[:, 0], anchor)
    assert out.isfinite().all()
    assert len(calls) == 4
    assert all((sigma[:, 0] == 0).all() and (sigma[:, 1:] > 0).all() for sigma in calls)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_sampling_is_deterministic_and_needs_no_gradient():
    weight = torch.ones((), requires_grad=True)
    runs = [
        UniPC().sample(
            lambda x, s: weight * gaussian_velocity(x, s), noise(), num_steps=5, shift=5.0
        )
        for _ in range(2)
    ]
    assert torch.equal(*runs)
    assert not runs[0].requires_grad


def test_solvers_are_made_by_name():
    assert create("euler") == Euler()
    assert create("unipc") == UniPC(truncate_times=False)
    assert create("unipc", numerics="published") == UniPC(truncate_times=True)
    with pytest.raises(SolarError) as caught:
        create("heun")
    assert (caught.value.code, caught.value.exit_code) == ("inference.unknown-solver", 2)


def test_no_steps_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Euler().sample(gaussian_velocity, noise(), num_steps=0, shift=5.0)


def exact_map(x, sigma_BF, endpoint_BF):
    """u of x0 ~ N(0.4, 0.5^2): from any level to any lower one in one jump."""
    s, e = (value[..., None, None, None] for value in (sigma_BF, endpoint_BF))

    def spread(level):
        return ((1 - level) ** 2 * 0.25 + level**2).sqrt()

    arrival = (1 - e) * 0.4 + spread(e) / spread(s) * (x - (1 - s) * 0.4)
    return (x - arrival) / (s - e).clamp(min=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 4, 8])
def test_an_exact_flow_map_arrives_in_any_number_of_jumps(steps):
    start = torch.randn(1, 3, 2, 2, 2, generator=torch.Generator().manual_seed(0))
    ended = create("flowmap").sample(exact_map, start, num_steps=steps, shift=5.0)
    assert torch.allclose(ended, 0.4 + 0.5 * start, atol=1e-5)


def test_a_few_step_student_is_told_its_levels_and_noised_afresh_between_them():
    told, levels = [], (1.0, 0.9375, 5 / 6, 0.625)

    def velocity(x, sigma_BF):
        told.append(sigma_BF[0].tolist())
        return (x - 0.3) / sigma_BF[..., None, None, None].clamp(min=1e-6)

    start, anchor = torch.randn(1, 3, 2, 2, 2), torch.zeros(1, 2, 2, 2)
    drawn = []

    def fresh(number):
        drawn.append(number)
        return torch.randn(1, 3, 2, 2, 2)

    solver = create("self_forcing", levels=levels)
    ended = solver.sample(
        velocity, start, num_steps=4, shift=5.0, anchor_BCHW=anchor, fresh_noise=fresh
    )
    assert torch.allclose(ended[:, 1:], torch.full_like(ended[:, 1:], 0.3), atol=1e-5)
    assert torch.equal(ended[:, 0], anchor)
    assert [row[1] for row in told] == pytest.approx(levels)
    assert [row[0] for row in told] == [0.0] * 4
    assert drawn == [0, 1, 2]


def test_published_few_step_times_are_rounded_to_bfloat16():
    told = []

    def velocity(x, sigma_BF):
        told.append(round(float(sigma_BF[0, 0]) * 1000, 3))
        return torch.zeros_like(x)

    create("self_forcing", numerics="published", levels=(1.0, 0.9375, 5 / 6, 0.625)).sample(
        velocity,
        torch.zeros(1, 1, 1, 1, 1),
        num_steps=4,
        shift=5.0,
        fresh_noise=lambda number: torch.zeros(1, 1, 1, 1, 1),
    )
    assert told == [1000.0, 936.0, 832.0, 624.0]
