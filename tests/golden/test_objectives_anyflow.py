"""AnyFlow v1.5 on paper: pairs, weights, windows, rescale, a fully listed loss, the closed form."""

from __future__ import annotations

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


def objective(shift_k, **changes):
    values = {
        "shift_k": shift_k,
        "table": time_table(shift_k),
        "anchored": False,
        "half_width": 5.0 / 1000,
        "guidance": 1.0,
        "diffusion_share": 0.5,
        "consistency_share": 0.25,
        "global_batch": 4,
        "numerics": "published",
    }
    return AnyFlow(**{**values, **changes})


class Field:
    """A closed-form map as the objective asks for it."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x, sigma_BF, endpoint_BF):
        return self.function(x, wide(sigma_BF), wide(endpoint_BF))

    def again(self, x, sigma_IF, endpoint_IF, index_I):
        return self(x, sigma_IF, endpoint_IF)

    def unconditional(self, x, sigma_BF, endpoint_BF):
        raise AssertionError("no guidance, no negative prompt")


def wide(level_BF):
    return level_BF[..., None, None, None]


def test_listed_values(golden):
    file = golden("objectives_anyflow.json", prose=("nvlabs_gaussian", "nvlabs_beta08"))
    pairs(file)
    weights_and_windows(file)
    rescale(file)
    tiny_loss(file)
    closed_form(file)


def pairs(file):
    for index, case in enumerate(file.document["time_pairs"]):
        place = ("time_pairs", index)
        batch, world, d, c, k = (
            file.take(*place, name) for name in ("batch", "world", "d", "c", "shift")
        )
        file.take(*place, "seed"), file.take(*place, "seed_rule")
        classes = published_classes(batch * world, d, c)
        for number, _ in enumerate(case["ranks"]):
            here = (*place, "ranks", number)
            rank = file.take(*here, "rank")
            generator = torch.Generator().manual_seed(file.take(*here, "seed"))
            u1, u2 = (torch.rand(batch, generator=generator) for _ in range(2))
            own = classes[rank * batch : (rank + 1) * batch]
            t, r = time_pairs(u1, u2, own)
            file.compare((*here, "type"), own, atol=0)
            file.compare((*here, "t"), t, atol=1e-7)
            file.compare((*here, "r"), r, atol=1e-7)
            file.compare((*here, "raw_t"), 1000 * shift(t, float(k)), atol=1e-3)
            file.compare((*here, "raw_r"), 1000 * shift(r, float(k)), atol=1e-3)


def weights_and_windows(file):
    raw = torch.tensor(file.take("gaussian_weight", "raw_t"))
    for k in (1, 5, 12):
        table = time_table(float(k))
        file.compare(("gaussian_weight", f"shift{k}"), table.weights_N[table.nearest(raw)])
    t, r = (torch.tensor(file.take("window", name)) / 1000 for name in "tr")
    upper, lower = difference_window(t, r, file.take("window", "epsilon") / 1000)
    file.compare(("window", "t_plus"), 1000 * upper, atol=1e-3)
    file.compare(("window", "t_minus"), 1000 * lower, atol=1e-3)


def rescale(file):
    losses = torch.tensor(file.take("adaptive_rescale", "loss"))
    diffusion = torch.tensor(file.take("adaptive_rescale", "is_diffusion"))
    assert file.take("adaptive_rescale", "eps") == 1e-5
    mean = float(losses[diffusion].mean())
    file.compare(("adaptive_rescale", "out"), adaptive_rescale(losses, diffusion, mean))
    losses = torch.tensor(file.take("adaptive_rescale_no_diffusion", "loss"))
    unscaled = adaptive_rescale(losses, torch.zeros(4, dtype=torch.bool), None)
    file.compare(("adaptive_rescale_no_diffusion", "out"), unscaled, atol=0)


def tiny_loss(file):
    def listed(name):
        return torch.tensor(file.take("tiny_loss", name))

    assert file.take("tiny_loss", "field").startswith("noise-ward")
    rule = objective(float(file.take("tiny_loss", "shift")))
    half_width = file.take("tiny_loss", "epsilon") / 1000
    field = Field(lambda x, s, r: 0.3 * x * (1 + s) - 0.7 * (s - r) + 0.2 * torch.sin(x))
    clean, noise = (listed(name)[:, None, :, None, None] for name in ("x0", "eps"))
    sigma, endpoint = (listed(name)[:, None] for name in ("sigma_t", "sigma_r"))
    mask = torch.ones_like(sigma, dtype=torch.bool)
    parts = rule.forward_map(field, clean, noise, sigma, endpoint, mask)
    upper, lower = difference_window(sigma, endpoint, half_width)
    file.compare(("tiny_loss", "t_plus"), 1000 * upper[:, 0], atol=1e-3)
    file.compare(("tiny_loss", "t_minus"), 1000 * lower[:, 0], atol=1e-3)
    tangent = field(parts.noisy_BFCHW, sigma, sigma)
    sides = [
        field(parts.noisy_BFCHW + wide(side - sigma) * tangent, side, endpoint)
        for side in (upper, lower)
    ]
    slope = (sides[0] - sides[1]) / (1000 * wide(upper - lower))
    file.compare(("tiny_loss", "derivative_per_raw_unit"), slope[:, 0, :, 0, 0], atol=2e-7)
    assert torch.allclose(parts.slope_BFCHW, 1000 * wide(sigma - endpoint) * slope, atol=2e-4)
    raw = masked_mean_square(parts.prediction_BFCHW - parts.target_BFCHW, mask)
    file.compare(("tiny_loss", "raw"), raw, atol=2e-5)
    diffusion = listed("is_diffusion")
    rescaled = adaptive_rescale(raw, diffusion, float(raw[diffusion].mean()))
    file.compare(("tiny_loss", "rescaled"), rescaled, atol=2e-5)
    weight = rule.weights(sigma, mask)
    file.compare(("tiny_loss", "weight"), weight, atol=2e-5)
    file.compare(("tiny_loss", "loss"), (rescaled * weight).mean(), atol=2e-5)


def closed_form(file):
    place = "closed_form_anyflow_loss"
    m, s, k, seed, batch, dim = (
        file.take(place, name) for name in ("m", "s", "shift", "seed", "B", "D")
    )
    file.take(place, "generator")

    def variance(level):
        return (1 - level) ** 2 * s**2 + level**2

    def exact(x, sigma, rho):
        gap = (variance(sigma) - variance(rho)) / variance(sigma)
        span = torch.where(sigma == rho, torch.ones_like(sigma), sigma - rho)
        mean = gap / (1 + (1 - gap).sqrt()) / span
        diagonal = (sigma - (1 - sigma) * s**2) / variance(sigma)
        return -m + torch.where(sigma == rho, diagonal, mean) * (x - (1 - sigma) * m)

    generator = torch.Generator().manual_seed(seed)
    x0, eps = (torch.randn(batch, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    generator.manual_seed(seed + 1)
    u1, u2 = (torch.rand(batch, generator=generator) for _ in range(2))
    rule = objective(float(k), global_batch=batch)
    classes = published_classes(batch, 0.5, 0.25)
    t, r = time_pairs(u1, u2, classes)
    sigma, endpoint = (shift(value, float(k))[:, None] for value in (t, r))
    file.compare((place, "sigma_t"), sigma[:8, 0])
    file.compare((place, "sigma_r"), endpoint[:8, 0])
    mask = torch.ones_like(sigma, dtype=torch.bool)
    clean, noise = ((m + s * x0)[:, None, :, None, None], eps[:, None, :, None, None])
    parts = rule.forward_map(Field(exact), clean, noise, sigma.double(), endpoint.double(), mask)
    raw = masked_mean_square(parts.prediction_BFCHW - parts.target_BFCHW, mask)
    floor = s**2 / variance(sigma[:, 0].double())
    file.compare((place, "raw_per_sample_first8"), raw[:8], atol=2e-6)
    file.compare((place, "expected_floor_first8"), floor[:8])
    file.compare((place, "mean_raw"), raw.mean())
    file.compare((place, "mean_floor"), floor.mean())
    for number in range(3):
        own = classes == number
        file.compare((place, "mean_raw_by_type", str(number)), raw[own].mean())
        file.compare((place, "mean_floor_by_type", str(number)), floor[own].mean())
        assert abs(raw[own].mean() / floor[own].mean() - 1) < 0.06
    rescaled = adaptive_rescale(raw, classes == 0, float(raw[classes == 0].mean()))
    file.compare((place, "loss"), (rescaled * rule.weights(sigma, mask)).mean(), atol=2e-5)
