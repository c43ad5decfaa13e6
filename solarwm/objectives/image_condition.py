"""Which samples train without their first frame as condition.

Shapes: B batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from solarwm.nn.random import keyed_generator


def keyed_drops(probability: float, *, seed: int, step: int, slots: Sequence[int]) -> Tensor:
    """Boolean [B]: one draw a slot of the global batch, equal on every topology."""
    draws = [
        torch.rand((), generator=keyed_generator(seed, "image-drop", step, slot)) < probability
        for slot in slots
    ]
    return torch.stack(draws)


def published_drops(
    probability: float, *, batch: int, seed: int, step: int, dp_rank: int, micro_index: int
) -> Tensor:
    """Boolean [B] of the published rule, which is bound to its topology.

    Row i is dropped when the little-endian 64-bit BLAKE2b of
    `ti2v-image-drop-v1|seed|step|dp_rank|micro|i` is below floor(p 2^64).
    """
    limit = int(probability * 2**64)
    drops = []
    for row in range(batch):
        text = f"ti2v-image-drop-v1|{seed}|{step}|{dp_rank}|{micro_index}|{row}"
        value = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
        drops.append(value < limit)
    return torch.tensor(drops)
