"""Pairs of times a flow map is trained between, and which kind of pair a sample gets.

A sample is of one class: diffusion (r = t, plain flow matching), consistency (r = 0) or map (0 < r
< t). `published` fixes the class by the place in the global batch; `corrected` lets the classes
move round the batch with the step, so that no rank, micro batch or part of the data keeps one
class, and carries what rounding leaves over to the next steps, so that a batch of one sees them all.

Shapes: B batch, G global batch.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import gcd

import torch
from torch import Tensor

DIFFUSION, CONSISTENCY, MAP = 0, 1, 2
CLASS_NAMES = ("diffusion", "consistency", "map")
_FINEST = 1000
_GOLDEN = 0.381966


def published_classes(global_batch: int, diffusion: float, consistency: float) -> Tensor:
    """Class int8 [G] by global place: round(dG) diffusion, then round(cG) consistency, half to even."""
    first = round(diffusion * global_batch)
    second = first + round(consistency * global_batch)
    place_G = torch.arange(global_batch)
    return ((place_G >= first).to(torch.int8) + (place_G >= second).to(torch.int8)).to(torch.int8)


def rotated_classes(step: int, global_batch: int, diffusion: float, consistency: float) -> Tensor:
    """Class int8 [G] by slot in step `step`: equal shares over the steps, moved round the batch.

    Samples counted through all steps follow a fixed cycle in the shares' proportion; the classes of
    one step stand together in the order diffusion, consistency, map and start at another slot in
    the next step. Depends on nothing but (slot, step, G).
    """
    cycle = _cycle(diffusion, consistency)
    first = step * global_batch
    here = sorted(cycle[(first + place) % len(cycle)] for place in range(global_batch))
    period = len(cycle) // gcd(len(cycle), global_batch)
    offset = step // period * _stride(global_batch)
    return torch.tensor(
        [here[(slot + offset) % global_batch] for slot in range(global_batch)], dtype=torch.int8
    )


def time_pairs(u1_B: Tensor, u2_B: Tensor, class_B: Tensor) -> tuple[Tensor, Tensor]:
    """(t, r) fp32 [B] before the shift: t = u1, r = u2 t; r is t for diffusion, 0 for consistency
    and strictly between for a map."""
    t_B = u1_B
    inner_B = torch.minimum(u2_B * t_B, torch.nextafter(t_B, torch.zeros_like(t_B)))
    inner_B = torch.maximum(inner_B, torch.nextafter(torch.zeros_like(t_B), torch.ones_like(t_B)))
    r_B = torch.where(class_B == DIFFUSION, t_B, inner_B)
    return t_B, r_B.masked_fill(class_B == CONSISTENCY, 0.0)


@lru_cache(maxsize=8)
def _cycle(diffusion: float, consistency: float) -> tuple[int, ...]:
    """The shortest sequence of classes in the shares' proportion, each as early as it is due."""
    first, second = (Fraction(s).limit_denominator(_FINEST) for s in (diffusion, consistency))
    shares = (first, second, 1 - first - second)
    length = 1
    for share in shares:
        length = length * share.denominator // gcd(length, share.denominator)
    counts = [0, 0, 0]
    cycle: list[int] = []
    for number in range(1, length + 1):
        due = [share * number - count for share, count in zip(shares, counts, strict=True)]
        chosen = due.index(max(due))
        counts[chosen] += 1
        cycle.append(chosen)
    return tuple(cycle)


def _stride(global_batch: int) -> int:
    """Slots moved a turn: near the golden section of the batch, without a common divisor with it."""
    stride = max(1, int(global_batch * _GOLDEN))
    while gcd(stride, global_batch) != 1:
        stride += 1
    return stride
