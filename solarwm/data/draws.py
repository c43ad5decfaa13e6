"""Keyed draws for the data order: a whole number from (seed, purpose, step, slot), and nothing
else.

The text and the hash are those of `solarwm.nn.random`, so that one rule covers tensors and sample
order; this module needs no torch.
"""

from __future__ import annotations

from hashlib import blake2b


def keyed_seed(seed: int, purpose: str, step: int, slot: int) -> int:
    """63 bits from BLAKE2b of `solarwm.draw.v1|seed|purpose|step|slot`."""
    text = f"solarwm.draw.v1|{seed}|{purpose}|{step}|{slot}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def keyed_below(bound: int, *, seed: int, purpose: str, step: int, slot: int) -> int:
    """A whole number in [0, bound); `bound` is at least 1."""
    return keyed_seed(seed, purpose, step, slot) % bound
