"""`run-result.json`: how a run ended, whichever way it ended."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from solarwm.runs.layout import RunLayout
from solarwm.runs.record import plain, read_object
from solarwm.storage.digests import human_json
from solarwm.storage.durable import fsync_directory, write_bytes_atomic

RESULT_SCHEMA = "solarwm.run-result.v1"
STATUSES = ("complete", "failed", "interrupted")


def write_result(layout: RunLayout, *, status: str, exit_code: int, **facts: Any) -> None:
    """Write the result: `status` is `complete`, `failed` or `interrupted`; `facts` are added as
    they are.

    Usual facts: code, error_type, message, phase, step, first_failing_rank, context (sample ids).
    """
    if status not in STATUSES:
        raise ValueError(f"{status!r} is not one of {', '.join(STATUSES)}")
    record = {
        **facts,
        "schema": RESULT_SCHEMA,
        "status": status,
        "exit_code": exit_code,
        "ended_at": time.time(),
    }
    write_bytes_atomic(layout.result, human_json(plain(record)))


def read_result(layout: RunLayout) -> dict[str, Any] | None:
    """The result of the last launch; None while it runs, or when it was killed."""
    return read_object(layout.result)


def clear_result(layout: RunLayout) -> None:
    """Remove the result of an earlier launch, durably. For rank 0, under the lock."""
    with contextlib.suppress(FileNotFoundError):
        layout.result.unlink()
        fsync_directory(layout.root)
