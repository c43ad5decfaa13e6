"""What a run's end is called: the code of the first rank that failed, told by rank 0 or by who is
left."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from solarwm.runs.failure import read_failures
from solarwm.runs.heartbeat import read_heartbeat
from solarwm.runs.layout import RunLayout
from solarwm.runs.result import read_result, write_result

WORD_S = 2.0
"""How long a rank that only saw its peers go waits for the record of the one that failed."""
STOP_CODES = (130, 143)
VICTIM = 6


class Place(Protocol):
    """Which rank of which launch."""

    @property
    def world_rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def token(self) -> str: ...


def records(layout: RunLayout, token: str) -> list[dict[str, Any]]:
    """The failure records of this launch, by rank."""
    return [record for record in read_failures(layout) if record.get("token") == token]


def first_failure(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The record of the rank that failed first; ranks that only saw another one go come last."""
    return min(
        found,
        key=lambda record: (record["exit_code"] == VICTIM, record["time"]),
        default=None,
    )


def vanished(layout: RunLayout, place: Place) -> int | None:
    """A rank of this launch on this machine whose process is gone without any record, or None."""
    told = {record["world_rank"] for record in records(layout, place.token)}
    for world_rank in range(place.world_size):
        if world_rank == place.world_rank or world_rank in told:
            continue
        beat = read_heartbeat(layout, world_rank)
        if beat and beat.get("token") == place.token and not alive(beat):
            return world_rank
    return None


def alive(beat: Mapping[str, Any]) -> bool:
    """Whether the process of a heartbeat lives; one of another machine counts as alive while it
    beats."""
    if beat.get("host") != socket.gethostname():
        return time.time() - float(beat.get("time", 0)) < 15.0
    try:
        os.kill(int(beat["pid"]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, KeyError):
        return True
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{beat['pid']}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state not in (b"Z", b"X")
    return True


def conclude(layout: RunLayout, *, launch: Place, own_code: int, facts: Mapping[str, Any]) -> None:
    """Write `run-result.json` if that falls to this rank: rank 0, or the lowest rank left when it
    is gone."""
    if not _speaks(layout, launch):
        return
    deadline = time.monotonic() + WORD_S
    lost: int | None = None
    while own_code == VICTIM and time.monotonic() < deadline:
        found = [r for r in records(layout, launch.token) if r["exit_code"] != VICTIM]
        if found:
            break
        lost = vanished(layout, launch)
        if lost is not None and time.monotonic() > deadline - WORD_S / 2:
            break
        time.sleep(0.05)
    first = first_failure(records(layout, launch.token))
    if first is None or (first["exit_code"] == VICTIM and lost is not None):
        code = own_code
        fields: dict[str, Any] = {
            "first_failing_rank": lost if lost is not None else launch.world_rank,
            "message": f"rank {lost} ended without a record (killed?)" if lost is not None else "",
        }
        if first is not None and first.get("last_collective"):
            fields["last_collective"] = first["last_collective"]
    else:
        code = int(first["exit_code"])
        fields = {"first_failing_rank": first["world_rank"], "message": first.get("message", "")}
        fields |= {
            name: first[name]
            for name in ("code", "error_type", "phase", "step", "last_collective", "context")
            if first.get(name) not in (None, "", {})
        }
    status = "interrupted" if code in STOP_CODES else "failed"
    if status == "interrupted":
        fields["stopped_rank"] = fields.pop("first_failing_rank")
    write_outcome(layout, status=status, exit_code=code, facts={**facts, **fields})


def write_outcome(
    layout: RunLayout, *, status: str, exit_code: int, facts: Mapping[str, Any]
) -> None:
    """The result file: `complete`, `failed` or `interrupted`, the run's exit code, and facts."""
    write_result(layout, status=status, exit_code=exit_code, **facts)


def _speaks(layout: RunLayout, launch: Place) -> bool:
    if launch.world_rank == 0:
        return True
    for world_rank in range(launch.world_rank):
        beat = read_heartbeat(layout, world_rank)
        if beat and beat.get("token") == launch.token and alive(beat):
            return False
    result = read_result(layout)
    return not (result and result.get("token") == launch.token)
