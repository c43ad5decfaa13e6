"""The Gaussian toy: closed forms of the file, our tables, recovery and Euler against them."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import torch

from solarwm.inference.solvers import Euler
from solarwm.nn.time import shift
from solarwm.objectives.flow_matching import clean_from_velocity
from solarwm.objectives.schedules import shifted_grid, time_table


def variance(level, s):
    return (1 - level) ** 2 * s**2 + level**2


def velocity(x, level, m, s):
    return -m + (level - (1 - level) * s**2) / variance(level, s) * (x - (1 - level) * m)


def flow_map(x, t, r, m, s):
    return (1 - r) * m + math.sqrt(variance(r, s) / variance(t, s)) * (x - (1 - t) * m)


def mean_velocity(x, t, r, m, s):
    return velocity(x, t, m, s) if t == r else (x - flow_map(x, t, r, m, s)) / (t - r)


def test_points(golden):
    file = golden("objectives_toy.json")
    for index, _ in enumerate(file.document["points"]):
        place = ("points", index)
        m, s, x, t, r = (file.take(*place, name) for name in "msxtr")
        v = velocity(x, t, m, s)
        file.compare((*place, "V_t"), variance(t, s))
        file.compare((*place, "v"), v)
        recovered = clean_from_velocity(*tensors(x, v), torch.full((1, 1), t).double())
        file.compare((*place, "x0hat"), recovered.item(), atol=1e-6)
        file.compare((*place, "flow_map"), flow_map(x, t, r, m, s))
        file.compare((*place, "u"), mean_velocity(x, t, r, m, s))
        file.compare((*place, "fm_floor"), s**2 / variance(t, s))
        file.compare((*place, "identity_u_plus_dt_Du"), v, atol=1e-6)
    floors(file)
    context_and_guidance(file)
    sampling(file)


def floors(file):
    for index, _ in enumerate(file.document["floors"]):
        place = ("floors", index)
        s, k = file.take(*place, "s"), float(file.take(*place, "shift"))
        table = time_table(k)
        floor = s**2 / variance(table.sigmas_N.double(), s)
        weight = table.weights_N.double()
        file.compare((*place, "uniform_index_unweighted"), floor.mean())
        weighted = (weight * floor).mean()
        file.compare((*place, "uniform_index_gauss_weighted"), weighted)
        spread = (3 * (weight * floor) ** 2).mean() - weighted**2
        file.compare((*place, "weighted_residual_std_per_element"), spread.sqrt(), atol=2e-5)


def context_and_guidance(file):
    for index, row in enumerate(file.document["ar1"]):
        place = ("ar1", index)
        rho, s = file.take(*place, "rho"), file.take(*place, "s")
        s_cond = s * math.sqrt(1 - rho**2)
        file.compare((*place, "s_cond"), s_cond)
        for name in row:
            match = re.fullmatch(r"floor_(no_context|tf_context)_sigma([\d.]+)", name)
            if match:
                width = s if match[1] == "no_context" else s_cond
                file.compare((*place, name), width**2 / variance(float(match[2]), width))
    for index, _ in enumerate(file.document["guided"]):
        place = ("guided", index)
        m_c, m_u, s, g, x, t, r = (
            file.take(*place, name) for name in ("m_c", "m_u", "s", "g", "x", "t", "r")
        )
        m_g = g * m_c + (1 - g) * m_u
        file.compare((*place, "m_g"), m_g)
        file.compare((*place, "v_g"), velocity(x, t, m_g, s))
        mixed = g * velocity(x, t, m_c, s) + (1 - g) * velocity(x, t, m_u, s)
        file.compare((*place, "check_g_vc_plus_1mg_vu"), mixed)
        file.compare((*place, "u_g"), mean_velocity(x, t, r, m_g, s))


def sampling(file):
    m, s, z, k = (file.take("sampling", name) for name in ("m", "s", "z", "shift"))
    file.compare(("sampling", "exact_endpoint_m_plus_s_z"), m + s * z)
    for index, _ in enumerate(file.document["sampling"]["rows"]):
        place = ("sampling", "rows", index)
        steps = file.take(*place, "nfe")
        grid = shifted_grid(steps, k).tolist()
        x = z
        for start, end in pairwise(grid):
            x = flow_map(x, start, end, m, s)
        file.compare((*place, "map"), x)
        noise = torch.full((1, 1, 1, 1, 1), z)
        sampled = Euler().sample(
            lambda x, level: velocity(x, level[..., None, None, None], m, s),
            noise,
            num_steps=steps,
            shift=k,
        )
        file.compare((*place, "euler"), sampled.item(), atol=2e-6)


def tensors(*values):
    return tuple(torch.full((1, 1, 1, 1, 1), value, dtype=torch.float64) for value in values)


def test_shift_of_the_grid_is_the_shift_of_its_levels():
    assert shifted_grid(4, 5.0)[1].item() == shift(0.75, 5.0)
