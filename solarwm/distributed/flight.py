"""What a rank can tell of its collectives when it fails: our own order log everywhere, and PyTorch's
flight recorder where the backend of the group has one."""

from __future__ import annotations

import json
from typing import Any

from solarwm.distributed.group import RankGroup

TOLD_ENTRIES = 32
_FIELDS = ("collective_seq_id", "profiling_name", "input_sizes", "output_sizes", "state")


class FlightLog:
    """The collectives of one rank, for heartbeats and failure records."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group

    def place(self) -> dict[str, Any]:
        """See `CollectiveLog.place`."""
        return self._group.collectives.log.place()

    def record(self) -> dict[str, Any]:
        """`place`, our latest collectives as `recent_collectives`, and PyTorch's own as
        `flight_recorder` where there is one. Talks to no other rank."""
        told = {**self.place(), "recent_collectives": self._group.collectives.log.tail()}
        entries = _entries(self._group)
        return {**told, "flight_recorder": entries} if entries else told


def _entries(group: RankGroup) -> list[dict[str, Any]]:
    """The latest entries of PyTorch's recorder, oldest first; empty where it has none."""
    if group.device.type != "cuda":
        return []
    from torch._C import _distributed_c10d as native

    dump = getattr(native, "_dump_fr_trace_json", None) or getattr(
        native, "_dump_nccl_trace_json", None
    )
    return [] if dump is None else read_trace(dump())


def read_trace(text: str | bytes) -> list[dict[str, Any]]:
    """The fields we tell, of the latest entries of a dump; empty for one that cannot be read."""
    try:
        found = json.loads(text).get("entries") or []
    except (ValueError, AttributeError):
        return []
    return [{name: entry.get(name) for name in _FIELDS} for entry in found[-TOLD_ENTRIES:]]
