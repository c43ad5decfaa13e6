"""The time coordinate, tables and grids against stored numbers."""

from __future__ import annotations

import re

import numpy as np
import torch

from solarwm.nn.time import TimeCoordinate, shift
from solarwm.objectives.schedules import (
    logit_normal_sigmas,
    shifted_grid,
    time_table,
    unipc_grid,
    warped_timesteps,
)

H3 = TimeCoordinate(scale=1.0, reverse=True)


def test_time_values(golden):
    file = golden("objectives_time.json")
    document = file.document
    levels = torch.tensor(file.take("shift_u"), dtype=torch.float64)
    for k in document["shift_f64"]:
        file.compare(("shift_f64", k), shift(levels, float(k)), atol=1e-11)
    for k in document["shift_f32"]:
        file.compare(("shift_f32", k), shift(levels.float(), float(k)), atol=2e-7)
    for k in document["h3_native_t_f32"]:
        native = H3.to_native(shift(levels.float(), float(k)))
        file.compare(("h3_native_t_f32", k), native, atol=2e-7)
    for name in document["flowmap_schedule_raw_f64"]:
        k, count = re.fullmatch(r"shift([\d.]+)_nfe(\d+)", name).groups()
        grid = shifted_grid(int(count), float(k)) * 1000
        file.compare(("flowmap_schedule_raw_f64", name), grid, atol=1e-8)
    for k in document["wan_table_f32"]:
        table = time_table(float(k))
        place = ("wan_table_f32", k)
        index = file.take(*place, "index")
        file.compare((*place, "timestep"), table.timesteps_N[index], atol=1e-4)
        file.compare((*place, "weight"), table.weights_N[index])
        file.compare((*place, "weight_sum"), table.weights_N.double().sum(), atol=1e-2)
        file.compare((*place, "last_timestep"), table.timesteps_N[-1])
    for k in document["warped_denoising_steps"]:
        place = ("warped_denoising_steps", k)
        labels = tuple(file.take(*place, "labels"))
        file.compare((*place, "timesteps"), warped_timesteps(labels, float(k)), atol=1e-4)
    for k in document["nearest_lookup"]:
        place, table = ("nearest_lookup", k), time_table(float(k))
        index = table.nearest(torch.tensor(file.take(*place, "query")))
        file.compare((*place, "index"), index, atol=0)
        file.compare((*place, "sigma"), table.sigmas_N[index], atol=2e-7)
    for name in document["h3_grid"]:
        count, k = re.fullmatch(r"points(\d+)_shift([\d.]+)", name).groups()
        sigmas = shifted_grid(int(count) - 1, float(k)).float()
        file.compare(("h3_grid", name, "sigmas"), sigmas, atol=2e-7)
        native = H3.to_native(sigmas)[:-1]
        file.compare(("h3_grid", name, "timesteps"), native, atol=2e-7)
    place = ("unipc_grid",)
    sigmas, timesteps = unipc_grid(file.take(*place, "steps"), file.take(*place, "shift"))
    file.compare((*place, "sigma_first5"), sigmas[:5], atol=2e-7)
    file.compare((*place, "timestep_int_first5"), timesteps[:5], atol=0)
    file.compare((*place, "timestep_int_last3"), timesteps[-3:], atol=0)
    ltx(file)


def ltx(file):
    place = ("ltx_sigma_numpy",)
    assert file.take(*place, "order").startswith("normal, uniform, choose")
    rng, n = np.random.default_rng(file.take(*place, "seed")), file.take(*place, "n")
    normal = rng.standard_normal(n, dtype=np.float32)
    uniform, choice = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    tokens = file.take(*place, "tokens")
    file.compare((*place, "mu"), 0.95 + (tokens - 1024) * 1.1 / 3072, atol=1e-12)
    sigma = logit_normal_sigmas(
        *(torch.from_numpy(draw) for draw in (normal, uniform, choice)),
        num_tokens=tokens,
        std=file.take(*place, "std"),
        eps=file.take(*place, "eps"),
        uniform_probability=file.take(*place, "pu"),
    )
    file.compare((*place, "sigma"), sigma, atol=1e-6)
