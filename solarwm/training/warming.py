"""Encoding the clips a run will need before its first step, shared out among the ranks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from solarwm.data.read_policy import is_read_fault
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
    stopped: Callable[[], int | None],
) -> int:
    """Encode what the cache lacks of the next `count` occurrences from `first`; gives the signal
    that stopped it.

    Rank r takes every world_size-th missing clip. `tell(done, total)` hears of this rank's
    progress. Samples that the policy of the clips passes over are left to the step that needs them,
    which takes a substitute; too many of them on one rank are refused. A fault on any rank is raised
    on all of them. Collective over all ranks.
    """
    fault: SolarError | None = None
    bad: set[str] = set()
    try:
        mine = _missing(clips, first, count)[group.world_rank :: group.world_size]
        for done, window in enumerate(mine):
            if stopped():
                break
            tell(done, len(mine))
            clips.look_ahead_at(islice(mine, done + 1, None))
            try:
                clips.encoded(window)
            except SolarError as error:
                if not clips.policy.passes_over(error):
                    raise
                if is_read_fault(error):
                    bad.add(clips.sample_of(window))
                    clips.policy.require_few(bad)
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
    return [window for window in windows if _is_missing(clips, window)]


def _is_missing(clips: ClipSource, window: Window) -> bool:
    try:
        return not clips.is_cached(window)
    except SolarError as fault:
        if clips.policy.passes_over(fault):
            return True
        raise
