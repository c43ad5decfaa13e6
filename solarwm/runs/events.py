"""One stream of structured events a rank, `events/rank-NNNNN.jsonl`: the truth about a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson

from solarwm.runs.layout import RunLayout
from solarwm.runs.record import plain
from solarwm.storage.durable import storage_errors

EVENT_SCHEMA = "solarwm.training-event.v1"
STEP_SCHEMA = "solarwm.training-step.v1"
RESUME_EVENTS = frozenset({"resume", "resumed"})


class EventWriter:
    """Appends events of one rank, each line in one write; a resumed run appends to the same file.

    Published keys stay (`schema`, `event`, `step`, ...); `world_rank` and `time` (Unix seconds) are
    added. Numbers that are not finite are written as text (`nan`, `inf`), since JSON has none.
    """

    def __init__(self, layout: RunLayout, world_rank: int) -> None:
        self._world_rank = world_rank
        self.path = layout.event_stream(world_rank)
        with storage_errors(self.path):
            layout.events.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o644)
            self._end_torn_line()

    def emit(self, event: str, **fields: Any) -> None:
        """Append one event; `schema=` overrides the published one of its kind.

        Raises `disk.*` (exit 5) when it cannot be written. Does nothing after `close`.
        """
        if self._descriptor < 0:
            return
        schema = fields.pop("schema", STEP_SCHEMA if event == "optimizer_step" else EVENT_SCHEMA)
        record = {
            "schema": schema,
            "event": event,
            "world_rank": self._world_rank,
            "time": time.time(),
            **fields,
        }
        line = orjson.dumps(plain(record)) + b"\n"
        with storage_errors(self.path):
            os.write(self._descriptor, line)

    def close(self) -> None:
        """Give the file back; closing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _end_torn_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole event of a stream, in file order; torn or foreign lines are skipped."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                record: object = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield cast("dict[str, Any]", record)


def effective_events(path: Path) -> list[dict[str, Any]]:
    """The events that count: steps that a resume took back are left out."""
    kept: list[dict[str, Any]] = []
    for record in read_events(path):
        step: object = record.get("step")
        if record.get("event") in RESUME_EVENTS and isinstance(step, int):
            kept = [earlier for earlier in kept if not _lies_after(earlier, step)]
        kept.append(record)
    return kept


def last_event(
    path: Path, *, kind: str | None = None, tail_size: int = 1 << 16
) -> dict[str, Any] | None:
    """The last whole event, of `kind` if given, in the last `tail_size` bytes of a stream, or None."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - tail_size))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            record: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict) and kind in (None, cast("dict[str, Any]", record).get("event")):
            return cast("dict[str, Any]", record)
    return None


def _lies_after(record: dict[str, Any], step: int) -> bool:
    own: object = record.get("step")
    kind = record.get("event")
    return kind not in RESUME_EVENTS and isinstance(own, int) and own > step
