"""Failure records: what a rank says before it leaves with a code that is not 0."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

from solarwm.runs.layout import RunLayout
from solarwm.runs.record import plain, read_object
from solarwm.storage.digests import human_json
from solarwm.storage.durable import make_directories, write_bytes_atomic

FAILURE_SCHEMA = "solarwm.rank-failure.v1"


def write_failure(layout: RunLayout, world_rank: int, *, exit_code: int, **fields: Any) -> None:
    """Write `ranks/rank-NNNNN.failure.json`: exit code, phase, step, time and whatever else is
    known.
    """
    record = {
        **fields,
        "schema": FAILURE_SCHEMA,
        "world_rank": world_rank,
        "exit_code": exit_code,
        "time": time.time(),
        "monotonic_s": time.monotonic(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    path = layout.failure(world_rank)
    make_directories(path.parent)
    write_bytes_atomic(path, human_json(plain(record)))


def read_failures(layout: RunLayout) -> list[dict[str, Any]]:
    """The readable failure records, by rank."""
    found: list[dict[str, Any]] = []
    for path in sorted(layout.ranks.glob("rank-*.failure.json")):
        record = read_object(path)
        if record is not None and _is_whole(record):
            found.append(record)
    return sorted(found, key=lambda record: record["world_rank"])


def clear_failures(layout: RunLayout) -> None:
    """Remove the records of an earlier launch. For rank 0, under the lock, before other ranks
    start.
    """
    for path in layout.ranks.glob("rank-*.failure.json"):
        with contextlib.suppress(OSError):
            path.unlink()


def _is_whole(record: dict[str, Any]) -> bool:
    numbers = (record.get("world_rank"), record.get("exit_code"))
    return all(isinstance(number, int) for number in numbers) and isinstance(
        record.get("time"), int | float
    )
