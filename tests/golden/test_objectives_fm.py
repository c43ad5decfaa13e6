"""Flow-matching losses of all time conventions against stored numbers."""

from __future__ import annotations

import torch

from solarwm.nn.time import TimeCoordinate, shift
from solarwm.objectives.flow_matching import (
    clean_from_velocity,
    interpolate,
    published_loss,
    squared_error,
    velocity_target,
)
from solarwm.objectives.schedules import time_table

H3 = TimeCoordinate(scale=1.0, reverse=True)
H3_SHIFT = 12.0


def first6(x):
    return x.flatten()[:6]


def test_losses_and_recovery(golden):
    file = golden("objectives_fm.json", prose=("convention_bridge",))
    assert file.take("wan", "order").startswith("clean, noise, prediction")
    torch.manual_seed(file.take("wan", "seed"))
    clean, noise, prediction = (torch.randn(file.take("wan", "shape")) for _ in range(3))
    frames = clean.shape[1]
    table = time_table(float(file.take("wan", "shift")))
    index = torch.tensor(file.take("wan", "idx"))[:, None].expand(-1, frames)
    times = table.timesteps_N[index].clone()
    times[:, 0] = 0
    file.compare(("wan", "timestep_frame1"), times[:, 1], atol=1e-4)
    nearest = table.nearest(times)
    sigma, weight = table.sigmas_N[nearest], table.weights_N[nearest]
    file.compare(("wan", "sigma_at_t0_lookup"), sigma[0, :1], atol=1e-8)
    file.compare(("wan", "weight_frame1"), weight[:, 1])
    noisy = interpolate(clean, noise, sigma)
    noisy[:, 0] = clean[:, 0]
    mask = torch.ones_like(times, dtype=torch.bool)
    mask[:, 0] = False
    target = velocity_target(clean, noise)
    file.compare(("wan", "noisy_frame1_flat6"), first6(noisy[0, 1]))
    loss = published_loss(*squared_error(prediction, target, weight, mask)).mean()
    file.compare(("wan", "loss"), loss)
    recovered = clean_from_velocity(noisy, prediction, sigma)
    file.compare(("wan", "x0_frame1_flat6"), first6(recovered[0, 1]))

    u = file.take("h3", "u")
    assert file.take("wan", "h3u") == u
    level = shift(torch.tensor(u), H3_SHIFT)
    file.compare(("h3", "t"), H3.to_native(level))
    everywhere = level.expand(times.shape)
    noisy = interpolate(clean, noise, everywhere)
    file.compare(("h3", "noisy_flat6"), first6(noisy))
    velocity = H3.velocity_from_model(prediction)
    flat, full = torch.ones_like(times), torch.ones_like(mask)
    loss = published_loss(*squared_error(velocity, target, flat, full)).mean()
    file.compare(("h3", "mse_vs_clean_minus_noise"), loss)
    file.compare(("h3", "x0_flat6"), first6(clean_from_velocity(noisy, velocity, everywhere)))

    assert file.take("ltx_like", "sigma") == file.take("wan", "ltx_sigma")
    loss = published_loss(*squared_error(prediction, target, flat, mask)).mean()
    file.compare(("ltx_like", "loss_frames_1_on"), loss)
