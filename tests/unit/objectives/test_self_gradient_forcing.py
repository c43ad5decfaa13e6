from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from solarwm.objectives.distribution_matching import (
    FROM_CONDITIONAL,
    FROM_UNCONDITIONAL,
    guided,
    matching_gradient,
    matching_loss,
    needs_unconditional,
)
from solarwm.objectives.rollout import exit_steps, replay
from solarwm.objectives.schedules import time_table
from solarwm.objectives.seam import Surroundings
from solarwm.objectives.self_gradient_forcing import CRITIC, STUDENT, Score, SelfGradientForcing
from tests.unit.objectives.clips import batch


class Student:
    """A chunk is alpha x + beta w (mean of the chunk before it); w writes the memory, beta reads it."""

    def __init__(self):
        self.w, self.beta, self.alpha = (
            torch.tensor(value, dtype=torch.float64, requires_grad=True)
            for value in (0.8, 0.5, 0.3)
        )
        self.memory = None
        self.calls = {"chunk": 0, "commit": 0, "replay": 0}

    def value(self, x, level, memory):
        read = 0.0 if memory is None else self.beta * memory
        return self.alpha * torch.sin(x) + read + 0.1 * level[..., None, None, None]

    def chunk(self, x, sigma, start):
        assert not torch.is_grad_enabled()
        self.calls["chunk"] += 1
        return self.value(x, sigma, None if start == 0 else self.memory)

    def commit(self, clean, start):
        assert not torch.is_grad_enabled()
        self.calls["commit"] += 1
        self.memory = self.w * clean.mean(dim=1, keepdim=True)

    def replay(self, x, sigma, clean):
        self.calls["replay"] += 1
        first = self.value(x[:, :3], sigma[:, :3], None)
        memory = self.w * clean[:, :3].mean(dim=1, keepdim=True)
        return torch.cat([first, self.value(x[:, 3:], sigma[:, 3:], memory)], dim=1)


def rule(**changes):
    values = {
        "levels": (1.0, 0.9375, 0.8, 0.6),
        "chunk_frames": 3,
        "anchored": True,
        "exit_scope": "step",
        "last_step_only": False,
        "shift_k": 5.0,
        "table": time_table(5.0),
        "score_low": 20.0,
        "score_high": 980.0,
        "teacher_guidance": 3.0,
        "critic_guidance": 0.0,
        "guidance_convention": FROM_CONDITIONAL,
        "student_every": 5,
        "numerics": "corrected",
    }
    return SelfGradientForcing(**{**values, **changes})


def clips(slots=(0, 1)):
    return batch(slots, dtype=torch.float64)


def judge(scale):
    return Score(
        conditional=lambda x, s: scale * torch.tanh(x) + s[..., None, None, None],
        unconditional=lambda x, s: 0.5 * scale * torch.tanh(x),
    )


def test_the_parameter_gradient_is_the_closed_form_on_the_replay_with_history_as_constants():
    student, data = Student(), clips()
    result = rule().student_losses(student, judge(0.4), judge(0.1), data, seed=1, step=5)
    result.per_sample_B.sum().backward()
    again = Student()
    with torch.no_grad():
        rollout = rule().roll_out(again, data, role=STUDENT, seed=1, step=5)
    x, sigma, c = rollout.inputs_BFCHW, rollout.sigma_BF, rollout.committed_BFCHW
    level = sigma[..., None, None, None]
    memory = c[:, :3].mean(dim=1, keepdim=True)
    output = x - level * torch.cat(
        [
            again.value(x[:, :3], sigma[:, :3], None),
            again.value(x[:, 3:], sigma[:, 3:], again.w * memory),
        ],
        dim=1,
    )
    noisy, told, _ = rule()._noised(
        torch.cat([data.latents_BFCHW[:, :1], output[:, 1:]], 1).detach(),
        data,
        role=STUDENT,
        seed=1,
        step=5,
    )
    sigma_s = told[..., None, None, None]
    teacher, critic = judge(0.4), judge(0.1)
    conditional = noisy - sigma_s * teacher.conditional(noisy, told)
    real = 4 * conditional - 3 * (noisy - sigma_s * teacher.unconditional(noisy, told))
    fake = noisy - sigma_s * critic.conditional(noisy, told)
    moved = output.detach()[:, 1:]
    norm = (moved - real[:, 1:]).abs().flatten(1).mean(-1)
    gradient = (fake - real)[:, 1:] / norm[:, None, None, None, None]
    per_element = (gradient / moved[0].numel()).detach()
    # d out / d theta by hand: out = x - level (alpha sin x + beta w mean c + 0.1 level)
    reads = torch.zeros_like(output)
    reads[:, 3:] = memory
    by_hand = {
        "alpha": (-level * torch.sin(x))[:, 1:],
        "beta": (-level * 0.8 * reads)[:, 1:],
        "w": (-level * 0.5 * reads)[:, 1:],
    }
    for name, derivative in by_hand.items():
        expected = (per_element * derivative).sum()
        assert torch.allclose(getattr(student, name).grad, expected, rtol=1e-5), name
    assert float(student.w.grad) != 0, "what is written to the memory must be learned"


def test_the_replay_gives_the_rollouts_own_estimates_again():
    student, data = Student(), clips()
    rollout = rule().roll_out(student, data, role=STUDENT, seed=1, step=5)
    output = replay(student, rollout, data.latents_BFCHW[:, 0])
    assert torch.allclose(output, rollout.committed_BFCHW, atol=1e-12)
    assert torch.equal(output[:, 0], data.latents_BFCHW[:, 0])
    assert bool((rollout.sigma_BF[:, 0] == 0).all())


def test_nothing_is_asked_of_a_student_when_teacher_and_critic_are_equal():
    student = Student()
    plain = rule(teacher_guidance=0.0)
    result = plain.student_losses(student, judge(0.4), judge(0.4), clips(), seed=1, step=5)
    result.per_sample_B.sum().backward()
    assert bool((result.per_sample_B == 0).all())
    assert [float(p.grad) for p in (student.w, student.beta, student.alpha)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("step", range(5, 30, 5))
def test_no_forward_is_made_after_the_exit_or_behind_the_last_chunk(step):
    student = Student()
    rollout = rule().roll_out(student, clips(), role=STUDENT, seed=1, step=step)
    exit_step = int(
        exit_steps((0,), seed=1, step=step, purpose="student-exit", num_steps=4, scope="step")
    )
    assert student.calls == {"chunk": 2 * (exit_step + 1), "commit": 1, "replay": 0}
    assert rollout.forwards == 2 * (exit_step + 1) + 1
    assert bool((rollout.sigma_BF[:, 1:] == rule().levels[exit_step]).all())


def test_the_critic_trains_on_committed_chunks_without_a_replay_in_corrected_numerics():
    for numerics, replays in (("corrected", 0), ("published", 1)):
        student = Student()
        result = rule(numerics=numerics).critic_losses(
            student, judge(0.3).conditional, clips(), seed=1, step=3
        )
        assert student.calls["replay"] == replays
        assert bool(torch.isfinite(result.per_sample_B).all())


def test_slots_exit_for_themselves_and_run_on_with_their_peers():
    every = rule(exit_scope="slot")
    slots = tuple(range(6))
    drawn = exit_steps(slots, seed=1, step=5, purpose="student-exit", num_steps=4, scope="slot")
    assert len(set(drawn.tolist())) > 1
    whole = every.roll_out(Student(), clips(slots), role=STUDENT, seed=1, step=5)
    for slot in slots:
        student = Student()
        one = every.roll_out(
            student,
            clips((slot,)),
            role=STUDENT,
            seed=1,
            step=5,
            around=Surroundings(peer_slots=slots),
        )
        assert student.calls["chunk"] == 2 * (int(drawn.max()) + 1)
        assert torch.allclose(one.committed_BFCHW[0], whole.committed_BFCHW[slot], atol=1e-12)
        assert torch.equal(one.sigma_BF[0], whole.sigma_BF[slot])


def test_all_slots_share_the_exit_of_a_step_and_roles_draw_their_own():
    seen = set()
    for step in range(20):
        drawn = [
            exit_steps((0, 3), seed=1, step=step, purpose=f"{role}-exit", num_steps=4, scope="step")
            for role in (STUDENT, CRITIC)
        ]
        assert all(len(set(d.tolist())) == 1 for d in drawn)
        seen.add(tuple(int(d[0]) for d in drawn))
    assert len(seen) > 8


def test_student_moves_every_fifth_step_but_the_first():
    due = [step for step in range(26) if rule().student_is_due(step)]
    assert due == [5, 10, 15, 20, 25]
    for done in range(40):
        assert rule().student_updates(done) == sum(rule().student_is_due(s) for s in range(done))


def test_guidance_conventions_name_the_same_field_at_scales_one_apart():
    c, u = torch.randn(3), torch.randn(3)
    assert torch.allclose(
        guided(c, u, 3.0, FROM_CONDITIONAL), guided(c, u, 4.0, FROM_UNCONDITIONAL)
    )
    assert not needs_unconditional(0.0, FROM_CONDITIONAL)
    assert not needs_unconditional(1.0, FROM_UNCONDITIONAL)
    assert torch.equal(guided(c, None, 3.0, FROM_CONDITIONAL), c)


def test_the_gradient_does_not_depend_on_the_scale_of_its_inputs():
    x, fake, real = (torch.randn(2, 4, 3, 2, 2) for _ in range(3))
    mask = torch.ones(2, 4, dtype=torch.bool)
    one = matching_gradient(x, fake, real, mask).gradient_BFCHW
    other = matching_gradient(7 * x, 7 * fake, 7 * real, mask).gradient_BFCHW
    assert torch.allclose(one, other, atol=1e-5)


def test_gaussian_student_reaches_the_teachers_mean():
    """Student N(a, s^2), teacher N(m, s^2), exact critic: a goes to m under the matching loss."""
    m, s = 0.4, 0.5
    a = torch.tensor(1.0, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(64, 1, dtype=torch.bool)
    for _ in range(60):
        x = a + s * torch.randn(64, 1, 16, 1, 1, generator=generator)
        level = float(torch.rand((), generator=generator)) * 0.9 + 0.05
        variance = (1 - level) ** 2 * s**2 + level**2
        difference = (a.detach() - m) * level**2 / variance
        gradient = torch.full_like(x, float(difference)).detach()
        loss = matching_loss(x, gradient, mask).mean()
        (grad,) = torch.autograd.grad(loss, a)
        a = (a - 0.5 * grad).detach().requires_grad_()
    assert abs(a.item() - m) < 1e-3


def test_published_scores_are_noised_at_the_nearest_table_entry_and_told_as_drawn():
    data, between = clips(), rule(score_low=333.0, score_high=333.0)
    exact, told, noise = between._noised(data.latents_BFCHW, data, role=CRITIC, seed=1, step=1)
    nearest, same, _ = replace(between, numerics="published")._noised(
        data.latents_BFCHW, data, role=CRITIC, seed=1, step=1
    )
    assert torch.equal(told, same)
    table = time_table(5.0)
    level = table.sigmas_N[table.nearest(told[:, 1] * 1000)].double()[:, None, None, None, None]
    clean = data.latents_BFCHW
    expected = ((1 - level) * clean + level * noise)[:, 1:]
    assert torch.allclose(nearest[:, 1:], expected, atol=1e-6)
    assert not torch.allclose(exact[:, 1:], expected, atol=1e-5)
