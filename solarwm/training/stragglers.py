"""Which rank the others wait for: named in every step's event, and told once when it stays slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

FACTOR = 1.5
"""A rank this many times slower than the middle one is slow."""
LEAST_S = 0.02
"""And by at least so many seconds."""
PATIENCE = 5
"""Steps in a row before it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the ranks took for their own part of a step: their data and their backwards, until
    they met. Equal on all ranks."""

    seconds: tuple[float, ...]
    """By world rank."""
    data_wait_s: tuple[float, ...]
    """Of that, waiting for data."""

    @property
    def slowest_rank(self) -> int:
        """The rank the others waited for; the lowest of equals."""
        return self.seconds.index(max(self.seconds))

    @property
    def is_uneven(self) -> bool:
        """Whether that rank was slow."""
        middle = median(self.seconds)
        return max(self.seconds) > max(FACTOR * middle, middle + LEAST_S)

    def plain(self) -> dict[str, Any]:
        """For the step's event."""
        rank = self.slowest_rank
        return {
            "slowest_rank": rank,
            "slowest_rank_s": self.seconds[rank],
            "median_rank_s": median(self.seconds),
            "slowest_rank_data_wait_s": self.data_wait_s[rank],
        }


def pace_of(table: torch.Tensor) -> Pace:
    """The pace of [ranks, 2] seconds: all of a rank's part, and of that the wait for data."""
    rows: list[list[float]] = table.tolist()
    return Pace(seconds=tuple(row[0] for row in rows), data_wait_s=tuple(row[1] for row in rows))


def added(paces: Sequence[Pace]) -> Pace:
    """The pace of a step with several updates."""
    return Pace(
        seconds=tuple(sum(parts) for parts in zip(*(p.seconds for p in paces), strict=True)),
        data_wait_s=tuple(
            sum(parts) for parts in zip(*(p.data_wait_s for p in paces), strict=True)
        ),
    )


class StragglerWatch:
    """Remembers which rank was slow in the latest steps."""

    def __init__(self) -> None:
        self._rank: int | None = None
        self._steps = 0

    def after(self, pace: Pace) -> dict[str, Any] | None:
        """The fields of a `straggler` event when a rank was slow in `PATIENCE` steps in a row, and
        again only after it was not; else None."""
        rank = pace.slowest_rank if pace.is_uneven else None
        self._steps = self._steps + 1 if rank is not None and rank == self._rank else 1
        self._rank = rank
        if rank is None or self._steps != PATIENCE:
            return None
        why = "data" if 2 * pace.data_wait_s[rank] > pace.seconds[rank] else "compute"
        return {**pace.plain(), "steps_in_a_row": self._steps, "waits_for": why}
