"""The learning rate of each update: linear warm-up, then half a cosine down to a floor."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupCosine:
    """Factor of the base rate: f(n) = n / max(1, warmup) for n < warmup, else m + (1-m)(1 + cos(pi
    p)) / 2 with p = min(1, (n - warmup) / max(1, total - warmup)) and m = `min_ratio`.

    `total` below `warmup` is legal: such a run ends inside its warm-up.
    """

    warmup: int
    total: int
    min_ratio: float

    def factor(self, completed: int) -> float:
        """Factor for the update after `completed` updates; with a warm-up the first update has rate
        0."""
        if completed < self.warmup:
            return completed / max(1, self.warmup)
        progress = min(1.0, (completed - self.warmup) / max(1, self.total - self.warmup))
        return self.min_ratio + (1.0 - self.min_ratio) * (1.0 + math.cos(math.pi * progress)) / 2.0


def due(step: int, every: int) -> bool:
    """Whether something done `every` steps (0 = never) is done after step `step`."""
    return every > 0 and step % every == 0
