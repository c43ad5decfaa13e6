"""Noise schedules and the UniPC trajectory against stored numbers."""

from __future__ import annotations

import re

import torch

from solarwm.inference.solvers import UniPC
from solarwm.objectives.schedules import (
    score_timesteps,
    shifted_grid,
    time_table,
    unipc_grid,
    warped_timesteps,
)


def test_schedules_of_every_shift(golden):
    file = golden("wan22_schedules.safetensors")
    labels = tuple(file.config["sgf_steps"])
    for key in file.keys():  # noqa: SIM118
        match = re.fullmatch(r"shift([\d.]+?)\.(?:(unipc|flowmap)(\d+)\.)?(\w+)", key)
        assert match, key
        k, kind, count, what = float(match[1]), match[2], int(match[3] or 0), match[4]
        if kind == "unipc":
            sigmas, timesteps = unipc_grid(count, k)
            file.compare(key, {"sigmas": sigmas, "timesteps": timesteps}[what])
        elif kind == "flowmap":
            assert what == "t_then_r"
            file.compare(key, shifted_grid(count, k) * 1000, atol=1e-9, rtol=1e-12)
        elif what == "score_t":
            file.compare(key, score_timesteps(file[f"shift{match[1]}.score_raw"], k))
        elif what == "sgf_steps":
            file.compare(key, warped_timesteps(labels, k))
        elif what != "score_raw":
            table = time_table(k)
            file.compare(
                key,
                {
                    "sigmas": table.sigmas_N,
                    "timesteps": table.timesteps_N,
                    "weights": table.weights_N,
                }[what],
            )


def test_unipc_follows_the_stored_trajectory(golden):
    file = golden("wan22_unipc_toy.safetensors")
    config = file.config
    steps, shift = config["unipc_steps"], config["shift"]
    sigmas, timesteps = unipc_grid(steps, shift)
    file.compare("sigmas", sigmas)
    file.compare("timesteps", timesteps)
    trajectory = file["trajectory"]
    states = [trajectory[0]]

    def velocity(x, sigma_BF):
        t = sigma_BF[:, :, None, None, None] * 1000
        return 0.4 * x - 0.3 * torch.cos(x) + 0.001 * t

    UniPC(truncate_times=True).sample(
        velocity,
        trajectory[0],
        num_steps=steps,
        shift=shift,
        step_callback=lambda done, total, x: states.append(x),
    )
    file.compare("trajectory", torch.stack(states))
