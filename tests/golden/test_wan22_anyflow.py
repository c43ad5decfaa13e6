"""The AnyFlow objective of the 5B route, first frame given and guidance folded in, against stored
numbers; its pairs on one and on four ranks."""

from __future__ import annotations

import re

import torch

from solarwm.nn.time import shift
from solarwm.objectives.anyflow import (
    AnyFlow,
    adaptive_rescale,
    difference_window,
    masked_mean_square,
)
from solarwm.objectives.schedules import time_table
from solarwm.objectives.time_pairs import published_classes, time_pairs


class Field:
    """u(z, t, r, c) = 0.3 z - 0.2 t + 0.1 r tanh z + 0.05 c z + 0.02 c."""

    def __init__(self, cond, uncond):
        self.cond, self.uncond = cond, uncond

    def at(self, z, sigma_BF, endpoint_BF, c):
        t, r = (value[..., None, None, None] for value in (sigma_BF, endpoint_BF))
        return 0.3 * z - 0.2 * t + 0.1 * r * torch.tanh(z) + 0.05 * c * z + 0.02 * c

    def __call__(self, z, sigma_BF, endpoint_BF):
        return self.at(z, sigma_BF, endpoint_BF, self.cond)

    def again(self, z, sigma_IF, endpoint_IF, index_I):
        return self.at(z, sigma_IF, endpoint_IF, self.cond[index_I])

    def unconditional(self, z, sigma_BF, endpoint_BF):
        return self.at(z, sigma_BF, endpoint_BF, self.uncond)


def test_objective_and_pairs(golden):
    file = golden("wan22_anyflow.safetensors")
    k = file.config["shift"]
    for prefix in sorted({key.rpartition(".")[0] for key in file.tensors if key[:5] == "pairs"}):
        rank, world, batch = map(int, re.fullmatch(r"pairs\.r(\d+)_w(\d+)_b(\d+)", prefix).groups())
        own = published_classes(world * batch, 0.5, 0.25)[rank * batch : (rank + 1) * batch]
        t, r = time_pairs(file[f"{prefix}.u1"], file[f"{prefix}.u2"], own)
        file.compare(f"{prefix}.type", own)
        file.compare(f"{prefix}.t", t)
        file.compare(f"{prefix}.r", r)
        file.compare(f"{prefix}.t_raw", 1000 * shift(t, k))
        file.compare(f"{prefix}.r_raw", 1000 * shift(r, k))

    clean, noise = file["obj.clean"], file["obj.noise"]
    batch, frames = clean.shape[:2]
    rule = AnyFlow(
        shift_k=k,
        table=time_table(k),
        anchored=True,
        half_width=5.0 / 1000,
        guidance=float(file["obj.guidance"]),
        diffusion_share=0.5,
        consistency_share=0.25,
        global_batch=batch,
        numerics="published",
    )
    types = rule.classes(0)
    file.compare("obj.type", types)
    t, r = time_pairs(file["obj.u1"], file["obj.u2"], types)
    sigma, endpoint, mask = rule.times(shift(t, k), shift(r, k), frames=frames)
    file.compare("obj.t_raw", 1000 * sigma)
    file.compare("obj.r_raw", 1000 * endpoint)
    upper, lower = difference_window(sigma, endpoint, rule.half_width)
    file.compare("obj.t_plus", 1000 * upper * mask)
    file.compare("obj.t_minus", 1000 * lower * mask)
    field = Field(file["obj.cond"], file["obj.uncond"])
    parts = rule.forward_map(field, clean, noise, sigma, endpoint, mask)
    file.compare("obj.noisy", parts.noisy_BFCHW)
    file.compare("obj.target", parts.target_BFCHW)
    file.compare("obj.prediction", parts.prediction_BFCHW, atol=5e-5)
    raw = masked_mean_square((parts.prediction_BFCHW - parts.target_BFCHW) / rule.guidance, mask)
    file.compare("obj.per_sample_raw", raw)
    rescaled = adaptive_rescale(raw, types == 0, float(raw[types == 0].mean()))
    file.compare("obj.per_sample_rescaled", rescaled)
    weight = rule.weights(sigma, mask)
    file.compare("obj.weight_mean", weight)
    file.compare("obj.loss", (rescaled * weight).mean())
