from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.data.tensors import LatentBatch
from solarwm.objectives.flow_matching import (
    FlowMatching,
    block_indices,
    clean_from_velocity,
    corrected_loss,
    create,
    interpolate,
    published_loss,
    squared_error,
    velocity_target,
)
from solarwm.objectives.schedules import time_table

SHAPE = (6, 3, 2, 2)


def objective(**changes):
    values = {
        "table": time_table(5.0),
        "anchored": True,
        "image_dropout": 0.1,
        "timestep_mode": "uniform_per_video",
        "block": 3,
        "numerics": "corrected",
    }
    return FlowMatching(**{**values, **changes})


def batch(slots, latents=None):
    count = len(slots)
    if latents is None:
        generator = torch.Generator().manual_seed(0)
        latents = torch.randn(64, *SHAPE, generator=generator)[list(slots)]
    return LatentBatch(
        latents_BFCHW=latents,
        text_BTD=torch.zeros(count, 1, 1),
        viewmats_BF44=torch.eye(4).expand(count, SHAPE[0], 4, 4),
        intrinsics_B33=torch.eye(3).expand(count, 3, 3),
        sample_ids=tuple(str(slot) for slot in slots),
        start_frames=(0,) * count,
        slots=tuple(slots),
        occurrences=tuple(slots),
    )


def some_velocity(x, sigma_BF):
    return torch.tanh(x) + sigma_BF[..., None, None, None]


def losses(rule, slots, step=3):
    return rule.losses(some_velocity, batch(slots), seed=11, step=step).per_sample_B


@pytest.mark.parametrize("mode", ["uniform_per_video", "per_block"])
def test_losses_are_the_same_however_the_batch_is_split(mode):
    rule = objective(timestep_mode=mode)
    whole = losses(rule, range(8))
    torch.testing.assert_close(torch.cat([losses(rule, [i]) for i in range(8)]), whole)
    torch.testing.assert_close(losses(rule, [5, 2]), whole[[5, 2]])
    assert not torch.equal(losses(rule, range(8), step=4), whole)


def test_the_library_random_state_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = losses(objective(), range(4))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(losses(objective(), range(4)), first)


def seen(rule, slots=(0, 1, 2), **options):
    calls = []

    def velocity(x, sigma_BF):
        calls.append((x, sigma_BF))
        return torch.zeros_like(x)

    rule.losses(velocity, batch(slots, **options), seed=0, step=0)
    return calls[0]


def test_the_first_frame_is_shown_clean_at_time_zero():
    x, sigma = seen(objective(image_dropout=0.0))
    assert sigma[:, 0].abs().max() == 0
    assert torch.equal(x[:, 0], batch((0, 1, 2)).latents_BFCHW[:, 0])
    assert (sigma[:, 1:] == sigma[:, 1:2]).all()
    assert (sigma[:, 1] > 0).all()


def test_a_dropped_first_frame_is_noised_and_supervised():
    rule = objective(image_dropout=1.0)
    x, sigma = seen(rule)
    assert torch.equal(sigma[:, 0], sigma[:, 1])
    assert not torch.equal(x[:, 0], batch((0, 1, 2)).latents_BFCHW[:, 0])
    exact = rule.losses(_truth(batch((0,))), batch((0,)), seed=0, step=0)
    assert exact.per_sample_B.item() < 1e-9


def _truth(data):
    """The velocity of straight paths to known clean latents: (x - x0) / sigma."""

    def velocity(x, sigma_BF):
        sigma = sigma_BF[..., None, None, None]
        return torch.where(sigma > 0, (x - data.latents_BFCHW) / sigma.clamp(min=1e-6), 0.0)

    return velocity


def test_a_route_without_anchor_noises_every_frame():
    _, sigma = seen(objective(anchored=False))
    assert (sigma > 0).all()


def test_blocks_share_one_level_and_others_differ():
    _, sigma = seen(objective(timestep_mode="per_block", image_dropout=1.0), slots=range(8))
    assert (sigma[:, :3] == sigma[:, :1]).all()
    assert (sigma[:, 3:] == sigma[:, 3:4]).all()
    assert (sigma[:, 0] != sigma[:, 3]).any()
    with pytest.raises(ValueError, match="5 latent frames"):
        block_indices(torch.zeros(1, 5, dtype=torch.int64), 3)


def test_a_nan_in_the_anchored_frame_changes_nothing():
    prediction, target = torch.randn(2, *SHAPE), torch.randn(2, *SHAPE)
    weight = torch.rand(2, SHAPE[0])
    mask = torch.ones(2, SHAPE[0], dtype=torch.bool)
    mask[:, 0] = False
    poisoned = prediction.clone()
    poisoned[:, 0] = float("nan")
    poisoned.requires_grad_()
    error, count = squared_error(poisoned, target, weight, mask)
    clean_error, _ = squared_error(prediction, target, weight, mask)
    assert torch.equal(error, clean_error)
    error.sum().backward()
    assert poisoned.grad[:, 1:].isfinite().all()
    assert poisoned.grad[:, 0].abs().max() == 0
    assert count.tolist() == [60.0, 60.0]


def test_the_published_share_means_to_the_whole_batch_loss():
    error, count = torch.tensor([6.0, 2.0]), torch.tensor([3.0, 1.0])
    assert published_loss(error, count).mean().item() == pytest.approx(8.0 / 4.0)
    assert corrected_loss(error, count).tolist() == [2.0, 2.0]
    assert corrected_loss(torch.zeros(1), torch.zeros(1)).item() == 0.0


def test_clean_latents_are_recovered():
    x0, eps, sigma = torch.randn(2, *SHAPE), torch.randn(2, *SHAPE), torch.rand(2, SHAPE[0])
    x = interpolate(x0, eps, sigma)
    recovered = clean_from_velocity(x, velocity_target(x0, eps), sigma)
    torch.testing.assert_close(recovered, x0, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("s", [0.5, 1.0])
def test_the_best_velocity_of_a_gaussian_reaches_the_known_floor(s):
    """x0 ~ N(0.4, s^2): the mean loss is the table mean of w s^2 / V, in closed form."""
    mean, rule = 0.4, objective(image_dropout=0.0)
    generator = torch.Generator().manual_seed(5)
    latents = mean + s * torch.randn(512, 3, 8, 8, 8, generator=generator)

    def velocity(x, sigma_BF):
        level = sigma_BF[..., None, None, None]
        variance = (1 - level) ** 2 * s**2 + level**2
        return -mean + (level - (1 - level) * s**2) / variance * (x - (1 - level) * mean)

    result = rule.losses(velocity, batch(range(512), latents), seed=1, step=0).per_sample_B
    sigma, weight = rule.table.sigmas_N.double(), rule.table.weights_N.double()
    expected = weight * s**2 / ((1 - sigma) ** 2 * s**2 + sigma**2)
    spread = expected.std() / 512**0.5
    assert abs(result.mean().item() - expected.mean().item()) < 4 * spread


def test_create_reads_the_run_config():
    model = SimpleNamespace(family="wan22_ti2v_5b", timestep_shift=3.0, numerics="auto")
    train = SimpleNamespace(
        timestep_mode="per_block", num_train_timesteps=1000, i2v_image_condition_dropout=0.2
    )
    rule = create(SimpleNamespace(model=model, train=train))
    assert torch.equal(rule.table.sigmas_N, time_table(3.0).sigmas_N)
    assert rule == objective(table=rule.table, image_dropout=0.2, timestep_mode="per_block")
    assert rule.anchored is SPEC.first_frame_anchored
    model.numerics = "published"
    published = create(SimpleNamespace(model=model, train=train), replace(SPEC))
    assert published.numerics == "published"
