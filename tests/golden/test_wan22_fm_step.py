"""One published flow-matching step of the 5B route against stored numbers."""

from __future__ import annotations

import torch

from solarwm.objectives.flow_matching import (
    block_indices,
    clean_from_velocity,
    interpolate,
    published_loss,
    squared_error,
    velocity_target,
)
from solarwm.objectives.image_condition import published_drops
from solarwm.objectives.schedules import time_table


def test_published_step(golden):
    file = golden("wan22_fm_step.safetensors")
    config = file.config
    table = time_table(config["shift"])
    clean, noise, dropped = file["clean"], file["noise"], file["dropped"].bool()
    times = table.timesteps_N[file["timestep_index"]]
    anchor = torch.zeros_like(times, dtype=torch.bool)
    anchor[:, 0] = ~dropped
    times = times.masked_fill(anchor, 0.0)
    file.compare("timestep", times)
    nearest = table.nearest(times)
    sigma, weight = table.sigmas_N[nearest], table.weights_N[nearest]
    noisy = interpolate(clean, noise, sigma)
    noisy = torch.where(anchor[..., None, None, None], clean, noisy)
    file.compare("noisy", noisy)
    target = velocity_target(clean, noise)
    file.compare("target", target)
    file.compare("weight", weight[..., None, None, None])
    prediction = file["prediction"]
    error, count = squared_error(prediction, target, weight, ~anchor)
    file.compare("loss", published_loss(error, count).mean())
    file.compare("x0_from_prediction", clean_from_velocity(noisy, prediction, sigma))
    file.compare("per_block_indices", block_indices(file["per_block_raw"], config["block"]))
    masks = file["drop_masks"]
    rows = []
    for permille, batch, seed, step, dp_rank, micro in file["drop_cases"].tolist():
        drops = published_drops(
            permille / 1000,
            batch=batch,
            seed=seed,
            step=step,
            dp_rank=dp_rank,
            micro_index=micro,
        )
        padded = torch.zeros(masks.shape[1], dtype=torch.bool)
        padded[:batch] = drops
        rows.append(padded)
    file.compare("drop_masks", torch.stack(rows))
