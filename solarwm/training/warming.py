"""Encoding the clips a run will need before its first step, shared out among the ranks."""

from __future__ import annotations

from collections.abc import Callable

from solarwm.distributed.collectives import share_outcome
from solarwm.distributed.group import RankGroup
from solarwm.errors.types import SolarError
from solarwm.training.clips import ClipSource, Window

LIMIT = 4096
"""Most clips encoded ahead; what lies beyond is encoded while training."""


def encode_ahead(
    clips: ClipSource,
    *,
    group: RankGroup,
    first: int,
    count: int,
    tell: Callable[[int, int], None],
    skipped: Callable[[str], bool],
    stopped: Callable[[], int | None],
) -> int:
    """Encode what the cache lacks of the next `count` occurrences from `first`; gives the signal
    that stopped it.

    Rank r takes every world_size-th missing clip. `tell(done, total)` hears of this rank's
    progress; `skipped` says whether an error code only means that the sample will be replaced. A
    fault on any rank is raised on all of them. Collective over all ranks.
    """
    fault: SolarError | None = None
    try:
        mine = _missing(clips, first, count)[group.world_rank :: group.world_size]
        for done, window in enumerate(mine):
            if stopped():
                break
            tell(done, len(mine))
            try:
                clips.encoded(window)
            except SolarError as error:
                if not skipped(error.code):
                    raise
        else:
            if mine:
                tell(len(mine), len(mine))
    except SolarError as error:
        fault = error
    share_outcome(group.collectives, fault, label="encode clips")
    signals = group.collectives.gather_objects(stopped() or 0, label="encode stop")
    return max(signals)


def _missing(clips: ClipSource, first: int, count: int) -> list[Window]:
    windows = list(clips.windows(first, count, limit=LIMIT))
    return [window for window in windows if not clips.is_cached(window)]
