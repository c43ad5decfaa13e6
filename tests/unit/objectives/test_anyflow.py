from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from solarwm.objectives.anyflow import REFERENCE, AnyFlow, adaptive_rescale, draw_pairs
from solarwm.objectives.flow_matching import FlowMatching, draw_noise, interpolate
from solarwm.objectives.schedules import time_table
from solarwm.objectives.seam import Surroundings
from solarwm.objectives.time_pairs import DIFFUSION
from tests.unit.objectives.clips import batch


def objective(**changes):
    values = {
        "shift_k": 5.0,
        "table": time_table(5.0),
        "anchored": True,
        "half_width": 0.005,
        "guidance": 1.0,
        "diffusion_share": 0.5,
        "consistency_share": 0.25,
        "global_batch": 4,
        "numerics": "corrected",
    }
    return AnyFlow(**{**values, **changes})


class Field:
    """A small map with one weight; counts the samples of every forward."""

    def __init__(self, bad_frame_0=False):
        self.weight = torch.tensor(0.4, requires_grad=True)
        self.bad_frame_0 = bad_frame_0
        self.calls = {"first": [], "again": [], "unconditional": []}

    def at(self, x, sigma_BF, endpoint_BF, strength=1.0):
        t, r = (value[..., None, None, None] for value in (sigma_BF, endpoint_BF))
        value = self.weight * torch.sin(x) + strength * t * x - 0.3 * r
        if self.bad_frame_0:
            value = torch.cat([value[:, :1] * torch.nan, value[:, 1:]], dim=1)
        return value

    def __call__(self, x, sigma_BF, endpoint_BF):
        self.calls["first"].append(len(x))
        return self.at(x, sigma_BF, endpoint_BF)

    def again(self, x, sigma_IF, endpoint_IF, index_I):
        assert not torch.is_grad_enabled()
        self.calls["again"].append(len(index_I))
        return self.at(x, sigma_IF, endpoint_IF)

    def unconditional(self, x, sigma_BF, endpoint_BF):
        assert not torch.is_grad_enabled()
        self.calls["unconditional"].append(len(x))
        return self.at(x, sigma_BF, endpoint_BF, strength=0.5)


def test_where_every_endpoint_is_its_own_time_the_loss_and_gradient_are_those_of_flow_matching():
    field, data = Field(), batch(range(4))
    rule = objective(diffusion_share=1.0, consistency_share=0.0)
    result = rule.losses(field, data, seed=3, step=2)
    result.per_sample_B.sum().backward()
    u1, _ = draw_pairs(data.slots, seed=3, step=2)
    sigma = (5 * u1 / (1 + 4 * u1))[:, None].repeat(1, 6)
    weight = rule.weights(sigma, torch.ones_like(sigma, dtype=torch.bool))
    sigma[:, 0] = 0
    clean, noise = data.latents_BFCHW, draw_noise(data.latents_BFCHW, data.slots, seed=3, step=2)
    plain = Field()
    noisy = interpolate(clean, noise, sigma)
    error = (plain.at(noisy, sigma, sigma) - (noise - clean))[:, 1:].square()
    expected = error.flatten(1).mean(-1) * weight
    expected.sum().backward()
    assert torch.allclose(result.per_sample_B, expected, atol=1e-6)
    assert torch.allclose(field.weight.grad, plain.weight.grad, rtol=1e-5)
    assert field.calls == {"first": [4], "again": [], "unconditional": []}


def test_samples_that_are_plain_flow_matching_cost_no_further_forward():
    field, data = Field(), batch(range(4))
    rule = objective(guidance=3.0)
    rule.losses(field, data, seed=0, step=0)
    others = int((rule.classes(0) != DIFFUSION).sum())
    assert others == 2
    assert field.calls == {"first": [4], "again": [others, 2 * others], "unconditional": [4]}


def test_a_rank_without_other_classes_forwards_with_its_peers_and_keeps_its_loss():
    rule = objective()
    slot = next(s for s in range(4) if rule.classes(0)[s] == DIFFUSION)
    alone, together = Field(), Field()
    first = rule.losses(alone, batch([slot]), seed=0, step=0)
    second = rule.losses(
        together, batch([slot]), seed=0, step=0, around=Surroundings(peer_slots=(0, 1, 2, 3))
    )
    assert alone.calls["again"] == []
    assert together.calls["again"] == [1, 2]
    assert torch.equal(first.per_sample_B, second.per_sample_B)


def test_losses_of_a_global_batch_do_not_depend_on_how_it_is_cut():
    rule, memory = objective(guidance=3.0), Surroundings(memory={REFERENCE: 0.7})
    whole = rule.losses(Field(), batch(range(4)), seed=1, step=5, around=memory)
    parts = [rule.losses(Field(), batch([s]), seed=1, step=5, around=memory) for s in range(4)]
    assert torch.equal(whole.per_sample_B, torch.cat([part.per_sample_B for part in parts]))


def test_rescaled_losses_equal_the_reference_and_keep_their_gradients_direction():
    rule = objective()
    for memory in ({}, {REFERENCE: 0.7}):
        field = Field()
        result = rule.losses(
            field, batch(range(4)), seed=1, step=0, around=Surroundings(memory=memory)
        )
        for name in ("consistency", "map"):
            own = result.metrics[f"{name}_count"].bool()
            raw, rescaled = (result.metrics[f"{name}_{part}"][own] for part in ("raw", "rescaled"))
            if memory:
                assert torch.allclose(rescaled, torch.full_like(rescaled, 0.7), rtol=1e-3)
            else:
                assert torch.equal(raw, rescaled)
    values = torch.tensor([2.0, 4.0], requires_grad=True)
    adaptive_rescale(values, torch.tensor([True, False]), 1.0).sum().backward()
    assert torch.allclose(values.grad, torch.tensor([1.0, 0.25]), rtol=1e-4)


def test_the_mean_diffusion_loss_of_the_last_step_that_had_one_is_remembered():
    rule = objective(global_batch=1)
    memory, seen = {}, []
    for step in range(8):
        result = rule.losses(
            Field(), batch([0]), seed=1, step=step, around=Surroundings(memory=memory)
        )
        sums = {name: float(result.metrics[name].sum()) for name in rule.loss_names}
        report = rule.report(sums, 1)
        seen += [name for name in report if name.endswith("_raw")]
        before, memory = memory, rule.remember(sums, memory)
        if "diffusion_raw" in report:
            assert memory == {REFERENCE: pytest.approx(report["diffusion_raw"])}
        else:
            assert memory == before
    assert set(seen) == {"diffusion_raw", "consistency_raw", "map_raw"}


def test_published_numerics_take_the_reference_from_the_same_microbatch_of_all_ranks():
    rule = objective(numerics="published")
    gathered = []

    def gather(values):
        gathered.append(values)
        return torch.stack([values, torch.tensor([2.0, torch.nan])])

    data = batch([2, 3])
    result = rule.losses(Field(), data, seed=0, step=9, around=Surroundings(gather=gather))
    assert bool(torch.isnan(gathered[0]).all()), "slots 2 and 3 are no diffusion samples"
    rescaled = result.metrics["consistency_rescaled"] + result.metrics["map_rescaled"]
    assert torch.allclose(rescaled, torch.full((2,), 2.0), rtol=1e-3)


def test_what_a_given_frame_predicts_does_not_reach_loss_or_gradient():
    values = []
    for bad in (False, True):
        field = Field(bad_frame_0=bad)
        result = objective(guidance=3.0).losses(field, batch(range(4)), seed=0, step=0)
        values.append(result.per_sample_B.detach())
    assert torch.isfinite(values[1]).all()
    assert torch.equal(*values)


def test_straight_paths_make_every_class_flow_matching():
    class Straight(Field):
        def at(self, x, sigma_BF, endpoint_BF, strength=1.0):
            return (x - 0.3) / sigma_BF[..., None, None, None].clamp(min=1e-6)

    data = batch(range(4))
    still = replace(data, latents_BFCHW=torch.full_like(data.latents_BFCHW, 0.3))
    result = objective(anchored=False).losses(Straight(), still, seed=0, step=0)
    for name in ("diffusion_raw", "consistency_raw", "map_raw"):
        assert float(result.metrics[name].abs().max()) < 1e-5


def test_flow_matching_reports_its_mean_and_remembers_nothing():
    rule = FlowMatching(
        table=time_table(5.0),
        anchored=True,
        image_dropout=0.0,
        timestep_mode="per_block",
        block=3,
        numerics="corrected",
    )
    assert rule.report({"flow_matching": 6.0}, 4) == {"flow_matching": 1.5}
    assert rule.remember({"flow_matching": 6.0}, {}) == {}
