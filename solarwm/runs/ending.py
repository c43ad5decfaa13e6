"""What a run's end is called: the code of the first rank that failed, told by rank 0 or by who is
left."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from solarwm.runs.failure import read_failures
from solarwm.runs.heartbeat import age_s, read_heartbeat
from solarwm.runs.layout import RunLayout
from solarwm.runs.result import read_result, write_result

WORD_S = 2.0
"""How long a rank that only saw its peers go waits for the record of the one that failed."""
STUCK_WORD_S = 6.5
"""The same after a collective that timed out: a rank stuck elsewhere leaves a little later."""
SILENT_S = 15.0
"""A rank whose heartbeat is older than this is taken for hung: a thread of its own writes it."""
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
    """The record of the rank that failed first; ranks that only saw another one go come last, and
    of those the ones that did not come to the collective in which the others waited first."""
    return min(
        found,
        key=lambda record: (
            record["exit_code"] == VICTIM,
            not record.get("stuck", False),
            record["time"],
        ),
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A rank of this launch that left no record, and why it is given up."""

    world_rank: int
    why: str


def lost_rank(layout: RunLayout, place: Place) -> Lost | None:
    """A rank without any record whose process is gone, else one that gives no sign of life."""
    told = {record["world_rank"] for record in records(layout, place.token)}
    silent: Lost | None = None
    for world_rank in range(place.world_size):
        if world_rank == place.world_rank or world_rank in told:
            continue
        beat = read_heartbeat(layout, world_rank)
        if not beat or beat.get("token") != place.token or alive(beat):
            continue
        if _process_state(beat) in _GONE:
            return Lost(world_rank=world_rank, why="ended without a record (killed?)")
        why = f"gives no sign of life (stopped or hung), process {beat.get('pid')} on {beat.get('host')}"
        silent = silent or Lost(world_rank=world_rank, why=why)
    return silent


def alive(beat: dict[str, Any]) -> bool:
    """Whether the process of a heartbeat lives and beats; one that is stopped counts as not alive."""
    age = age_s(beat)
    if age is None or age > SILENT_S:
        return False
    return _process_state(beat) not in (*_GONE, *_STOPPED)


_GONE = ("", "Z", "X")
_STOPPED = ("T", "t")


def _process_state(beat: Mapping[str, Any]) -> str:
    """The state letter of a process of this machine, empty when it is gone, `?` where it is not to
    be known."""
    if beat.get("host") != socket.gethostname():
        return "?"
    try:
        os.kill(int(beat["pid"]), 0)
    except ProcessLookupError:
        return ""
    except (PermissionError, KeyError):
        return "?"
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{beat['pid']}/stat").read_text().rpartition(")")[2].split()[0]
    return "?"


def conclude(layout: RunLayout, *, launch: Place, own_code: int, facts: Mapping[str, Any]) -> None:
    """Write `run-result.json` if that falls to this rank: rank 0, or the lowest rank left when it
    is gone."""
    if not _speaks(layout, launch):
        return
    lost = _wait_for_word(layout, launch) if own_code == VICTIM else None
    first = first_failure(records(layout, launch.token))
    if first is None or (first["exit_code"] == VICTIM and lost is not None):
        code = own_code
        fields: dict[str, Any] = {
            "first_failing_rank": lost.world_rank if lost is not None else launch.world_rank,
            "message": f"rank {lost.world_rank} {lost.why}" if lost is not None else "",
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
    if code == VICTIM:
        fields |= collectives_told(layout, launch)
    status = "interrupted" if code in STOP_CODES else "failed"
    if status == "interrupted":
        fields["stopped_rank"] = fields.pop("first_failing_rank")
    write_outcome(layout, status=status, exit_code=code, facts={**facts, **fields})


def collectives_told(layout: RunLayout, launch: Place) -> dict[str, Any]:
    """`last_collectives` (rank to last collective) and `missing_ranks`, those that made fewer
    collectives over all ranks than the others wait in; from failure records, else heartbeats.

    Empty when no rank has told anything. A rank of which nothing is known counts as missing.
    """
    told: dict[int, dict[str, Any]] = {}
    for world_rank in range(launch.world_size):
        beat = read_heartbeat(layout, world_rank)
        if beat and beat.get("token") == launch.token:
            told[world_rank] = beat
    for record in records(layout, launch.token):
        if "collective_counts" in record:
            told[record["world_rank"]] = record
    last = {rank: str(told[rank].get("last_collective") or "none") for rank in sorted(told)}
    counts = {rank: _collectives_of_all(record) for rank, record in told.items()}
    most = max(counts.values(), default=0)
    if not most:
        return {}
    missing = [rank for rank in range(launch.world_size) if counts.get(rank, 0) < most]
    return {
        "last_collectives": {str(rank): name for rank, name in last.items()},
        "missing_ranks": missing,
    }


def _collectives_of_all(record: Mapping[str, Any]) -> int:
    counts: object = record.get("collective_counts")
    made = cast("dict[str, object]", counts).get("world") if isinstance(counts, dict) else 0
    return made if isinstance(made, int) else 0


def _wait_for_word(layout: RunLayout, launch: Place) -> Lost | None:
    """Wait a little for the record of the rank that failed by itself; gives a rank that leaves none."""
    started = time.monotonic()
    while True:
        found = records(layout, launch.token)
        waited_s = time.monotonic() - started
        own_fault = any(record["exit_code"] != VICTIM for record in found)
        if own_fault or len(found) == launch.world_size:
            return None
        lost = lost_rank(layout, launch)
        if lost is not None and waited_s > WORD_S / 2:
            return lost
        timed_out = any(record.get("context", {}).get("timed_out") for record in found)
        if waited_s > (STUCK_WORD_S if timed_out else WORD_S):
            return lost
        time.sleep(0.05)


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
