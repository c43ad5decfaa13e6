"""Heartbeats: where each rank was when it last said something. They describe; the lock decides."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

from solarwm.runs.identity import own_identity
from solarwm.runs.layout import RunLayout
from solarwm.runs.record import plain, read_object
from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import private_sibling, storage_errors

HEARTBEAT_SCHEMA = "solarwm.heartbeat.v1"
_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


def write_heartbeat(layout: RunLayout, world_rank: int, **fields: Any) -> None:
    """Replace `heartbeats/rank-NNNNN.json`; readers see the old or the new one. Not synced to disk.

    Adds process id, start and command, host, boot, wall time and monotonic time (seconds) to `fields` (step, phase,
    ...).
    """
    record = {
        **fields,
        "schema": HEARTBEAT_SCHEMA,
        "world_rank": world_rank,
        **own_identity(os.getpid()).plain(),
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "time": time.time(),
        "monotonic_s": time.monotonic(),
    }
    path = layout.heartbeat(world_rank)
    private = private_sibling(path)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            private.write_bytes(canonical_json(plain(record)))
            os.replace(private, path)
        except BaseException:
            with contextlib.suppress(OSError):
                private.unlink()
            raise


def read_heartbeat(layout: RunLayout, world_rank: int) -> dict[str, Any] | None:
    """The last heartbeat of a rank, or None."""
    return read_object(layout.heartbeat(world_rank))


def read_heartbeats(layout: RunLayout) -> list[dict[str, Any]]:
    """The last heartbeat of every rank that has one, by rank."""
    records = (read_object(path) for path in sorted(layout.heartbeats.glob("rank-*.json")))
    return [record for record in records if record is not None]


def age_s(beat: dict[str, Any]) -> float | None:
    """Seconds since a heartbeat: by the monotonic clock on the machine that wrote it, else by wall
    time.

    So a clock that is set back does not make a run look alive or dead. None for a malformed record.
    """
    same_boot = beat.get("host") == socket.gethostname() and beat.get("boot_id") == boot_id()
    then: object = beat.get("monotonic_s") if same_boot else beat.get("time")
    if not isinstance(then, int | float):
        return None
    return max(0.0, (time.monotonic() if same_boot else time.time()) - then)


def boot_id() -> str:
    """An id of this boot of this machine; empty where the system gives none."""
    with contextlib.suppress(OSError), open(_BOOT_ID_PATH, encoding="ascii") as file:
        return file.read().strip()
    return ""
