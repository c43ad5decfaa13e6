"""Distribution matching on paper: gradient, normaliser, guidance, masks, score times, the scalar
example of self-gradient forcing, Gaussians."""

from __future__ import annotations

import torch

from solarwm.nn.time import shift
from solarwm.objectives.distribution_matching import (
    FROM_CONDITIONAL,
    guided,
    matching_gradient,
    matching_loss,
)
from solarwm.objectives.flow_matching import clean_from_velocity
from solarwm.objectives.schedules import score_timesteps, time_table
from solarwm.objectives.self_gradient_forcing import SelfGradientForcing


def everything(x):
    return torch.ones(x.shape[:2], dtype=torch.bool)


def test_listed_values(golden):
    file = golden("objectives_dmd.json")
    shape = tuple(file.take("plain", "shape"))
    generator = torch.Generator().manual_seed(file.take("plain", "seed"))
    file.take("plain", "order")
    fake, real, x = (torch.randn(shape, generator=generator) for _ in range(3))
    file.compare(("plain", "fake_flat8"), fake.flatten()[:8])
    asked = matching_gradient(x, fake, real, everything(x))
    file.compare(("plain", "normalizer"), asked.normaliser_B)
    file.compare(("plain", "grad_flat8"), asked.gradient_BFCHW.flatten()[:8])
    file.compare(("plain", "grad_abs_mean"), asked.gradient_BFCHW.abs().mean())
    output = x.clone().requires_grad_()
    loss = matching_loss(output, asked.gradient_BFCHW, everything(x)).mean()
    loss.backward()
    file.compare(("plain", "surrogate"), loss.detach())
    file.compare(("plain", "dL_dx_flat8"), output.grad.flatten()[:8], atol=1e-7)

    file.take("cfg", "rule"), file.take("cfg", "extra_draws")
    assert file.take("cfg", "matches_self_forcing_function")
    cond, uncond = (torch.randn(shape, generator=generator) for _ in range(2))
    strong = guided(cond, uncond, file.take("cfg", "scale"), FROM_CONDITIONAL)
    asked = matching_gradient(x, fake, strong, everything(x))
    file.compare(("cfg", "normalizer"), asked.normaliser_B)
    file.compare(("cfg", "grad_flat8"), asked.gradient_BFCHW.flatten()[:8])

    masked_frame(file, x, fake, real)
    equal = matching_gradient(x, real, real, everything(x)).gradient_BFCHW
    file.compare(("teacher_equals_critic", "grad_abs_sum"), equal.abs().sum(), atol=0)
    score_times(file)
    cadence(file)
    scalar(file)
    gaussians(file)


def masked_frame(file, x, fake, real):
    mask = everything(x)
    mask[:, 0] = False
    broken = fake.clone()
    broken[:, 0] = torch.nan
    asked = matching_gradient(x, broken, real, mask)
    place = "masked_nan_frame0"
    file.compare((place, "normalizer"), asked.normaliser_B)
    file.compare((place, "grad_abs_sum"), asked.gradient_BFCHW.abs().sum(), atol=1e-4)
    output = x.clone().requires_grad_()
    loss = matching_loss(output, asked.gradient_BFCHW, mask).mean()
    loss.backward()
    file.compare((place, "surrogate"), loss.detach())
    file.compare((place, "dL_dx_frame0_abs_sum"), output.grad[:, 0].abs().sum(), atol=0)
    file.compare((place, "dL_dx_flat8_frame1"), output.grad[:, 1].flatten()[:8], atol=1e-7)


def score_times(file):
    for index, _ in enumerate(file.document["score_timesteps"]):
        place = ("score_timesteps", index)
        count, k, seed = (file.take(*place, name) for name in ("b", "shift", "seed"))
        file.take(*place, "f")
        raw = torch.randint(1000, (count, 1), generator=torch.Generator().manual_seed(seed))[:, 0]
        file.compare((*place, "raw_label"), raw, atol=0)
        file.compare((*place, "timestep_per_sample"), score_timesteps(raw, float(k)), atol=1e-3)
    for index, _ in enumerate(file.document["h3_score_timesteps"]):
        place = ("h3_score_timesteps", index)
        generator = torch.Generator().manual_seed(file.take(*place, "seed"))
        raw = torch.randint(1000, (1,), generator=generator)
        file.compare((*place, "raw"), raw[0] / 1000)
        for stream, k in (("video_t", 12.0), ("audio_t", 3.0)):
            sigma = shift(raw / 1000, k).clamp(0.02, 0.98)
            assert torch.allclose(score_timesteps(raw, k) / 1000, sigma, atol=1e-6)
            file.compare((*place, stream), 1 - sigma[0])


def cadence(file):
    rule = SelfGradientForcing(
        levels=(1.0,),
        chunk_frames=1,
        anchored=False,
        exit_scope="step",
        last_step_only=False,
        shift_k=5.0,
        table=time_table(5.0),
        score_low=20.0,
        score_high=980.0,
        teacher_guidance=0.0,
        critic_guidance=0.0,
        guidance_convention=FROM_CONDITIONAL,
        student_every=file.take("student_update_outer_steps", "ratio"),
        numerics="corrected",
    )
    due = [step for step in range(31) if rule.student_is_due(step)]
    file.compare(("student_update_outer_steps", "first"), due, atol=0)
    assert [rule.student_updates(n) for n in (0, 1, 5, 6, 10, 11, 196)] == [0, 0, 0, 1, 1, 2, 39]


def scalar(file):
    """x_k = alpha n_k + beta (w c_(k-1)): gradients through the chain, the history alone, neither."""
    listed = file.take("sgf_scalar")
    n, y = listed["n"], listed["y"]
    for name, expected in listed["result"].items():
        w, beta, alpha = (
            torch.tensor(listed[key], dtype=torch.float64, requires_grad=True)
            for key in ("w", "beta", "alpha")
        )
        loss, history = 0.0, None
        for noise, target in zip(n, y, strict=True):
            x = alpha * noise
            if history is not None:
                c = history if name == "bptt" else history.detach()
                memory = w * c
                x = x + beta * (memory.detach() if name == "frozen" else memory)
            loss, history = loss + 0.5 * (x - target) ** 2, x
        loss.backward()
        place = ("sgf_scalar", "result", name)
        file.compare((*place, "loss"), loss.detach())
        for key, value in (("d_write_w", w), ("d_read_beta", beta), ("d_alpha", alpha)):
            gradient = 0.0 if value.grad is None else float(value.grad)
            file.compare((*place, key), gradient, atol=1e-7)
        assert expected


def gaussians(file):
    a, m, s = (file.take("gaussian_dmd", name) for name in "ams")
    file.take("gaussian_dmd", "rule")
    generator = torch.Generator().manual_seed(0)
    for level in file.take("gaussian_dmd", "sig"):
        variance = (1 - level) ** 2 * s**2 + level**2
        x = torch.randn(1, 1, 64, 1, 1, generator=generator, dtype=torch.float64)
        sigma = torch.full((1, 1), level, dtype=torch.float64)

        def estimate(mean, x=x, level=level, variance=variance, sigma=sigma):
            velocity = -mean + (level - (1 - level) * s**2) / variance * (x - (1 - level) * mean)
            return clean_from_velocity(x, velocity, sigma)

        difference = estimate(a) - estimate(m)
        file.compare(("gaussian_dmd", "grad_mean_by_sigma", str(level)), difference.mean())
        assert float(difference.std()) < 1e-12
