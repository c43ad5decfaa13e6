"""A small network trained by the AnyFlow rule on Gaussian data comes to the analytic floor.

x0 ~ N(m, s^2): whatever the endpoint, the least raw loss of an element is s^2 / V(sigma), V(sigma) =
(1 - sigma)^2 s^2 + sigma^2.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from solarwm.inference.flow_map import FlowMapJumps
from solarwm.objectives.anyflow import AnyFlow
from solarwm.objectives.schedules import time_table
from solarwm.objectives.seam import Surroundings
from solarwm.objectives.time_pairs import CLASS_NAMES
from tests.unit.objectives.clips import batch

MEAN, SPREAD, STEPS, SAMPLES = 0.4, 0.5, 400, 24


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
        )

    def forward(self, x, sigma_BF, endpoint_BF):
        t, r = (v[..., None, None, None].expand_as(x) for v in (sigma_BF, endpoint_BF))
        waves = [f(3 * v) for v in (t, r) for f in (torch.sin, torch.cos)]
        parts = [x, t, r, t - r, x * t, x * r, x * (t - r), t * r, *waves]
        return self.layers(torch.stack(parts, dim=-1))[..., 0]

    def again(self, x, sigma_IF, endpoint_IF, index_I):
        return self(x, sigma_IF, endpoint_IF)


def test_every_class_comes_within_ten_percent_of_the_floor():
    torch.manual_seed(0)
    network = Network()
    rule = AnyFlow(
        shift_k=5.0,
        table=time_table(5.0),
        anchored=False,
        half_width=0.005,
        guidance=1.0,
        diffusion_share=0.5,
        consistency_share=0.25,
        global_batch=SAMPLES,
        numerics="corrected",
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=6e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    memory, raw, floor = {}, dict.fromkeys(CLASS_NAMES, 0.0), dict.fromkeys(CLASS_NAMES, 0.0)
    data = batch(range(SAMPLES), shape=(1, 64, 1, 1))
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        fresh = torch.randn(data.latents_BFCHW.shape, generator=generator)
        data.latents_BFCHW.copy_(MEAN + SPREAD * fresh)
        result = rule.losses(network, data, seed=0, step=step, around=Surroundings(memory=memory))
        result.per_sample_B.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        memory = rule.remember({n: float(result.metrics[n].sum()) for n in rule.loss_names}, memory)
        if step > 0.7 * STEPS:
            sigma = result.metrics["sigma"]
            least = SPREAD**2 / ((1 - sigma) ** 2 * SPREAD**2 + sigma**2)
            for name in CLASS_NAMES:
                raw[name] += float(result.metrics[f"{name}_raw"].sum())
                floor[name] += float((least * result.metrics[f"{name}_count"]).sum())
    for name in CLASS_NAMES:
        assert 0.95 < raw[name] / floor[name] < 1.10, name
    start = torch.randn(256, 1, 64, 1, 1, generator=generator)
    with torch.no_grad():
        ended = FlowMapJumps().sample(network, start, num_steps=4, shift=5.0)
    gap = (ended - (MEAN + SPREAD * start)).square().mean().sqrt()
    assert math.isfinite(gap)
    assert gap < 0.2
