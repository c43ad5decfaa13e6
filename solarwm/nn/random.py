"""Keyed randomness: a draw comes from a generator made for it, never from a shared stream.

No world size, rank, worker or accumulation count may enter a key, so equal global batches see equal
draws on any topology (docs/decisions/0002-keyed-randomness.md).
"""

from __future__ import annotations

from hashlib import blake2b

import torch


def keyed_seed(seed: int, purpose: str, step: int, slot: int) -> int:
    """The 63-bit seed of one draw: BLAKE2b of `solarwm.draw.v1|seed|purpose|step|slot`."""
    text = f"solarwm.draw.v1|{seed}|{purpose}|{step}|{slot}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def keyed_generator(seed: int, purpose: str, step: int, slot: int) -> torch.Generator:
    """A CPU generator for one draw of one sample (`slot` = its place in the batch of `step`)."""
    return torch.Generator().manual_seed(keyed_seed(seed, purpose, step, slot))
