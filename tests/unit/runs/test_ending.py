"""Which rank failed first, and who says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from solarwm.runs import ending
from solarwm.runs.failure import write_failure
from solarwm.runs.heartbeat import write_heartbeat
from solarwm.runs.layout import RunLayout
from solarwm.runs.result import read_result
from solarwm.storage.durable import write_bytes_atomic


@dataclass(frozen=True)
class Place:
    world_rank: int
    world_size: int = 3
    token: str = "now"


def _record(layout: RunLayout, world_rank: int, exit_code: int, token: str = "now") -> None:
    write_failure(
        layout,
        world_rank,
        exit_code=exit_code,
        token=token,
        phase="train",
        step=3,
        last_collective="#7 step 4 agreement",
    )


def _dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return child.pid


def _beat(layout: RunLayout, world_rank: int, pid: int) -> None:
    write_heartbeat(layout, world_rank, token="now")
    path = layout.heartbeat(world_rank)
    write_bytes_atomic(
        path, path.read_bytes().replace(str(os.getpid()).encode(), str(pid).encode())
    )


def test_the_first_own_failure_wins_over_earlier_victims(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    _record(layout, 0, 6)
    _record(layout, 2, 7)
    _record(layout, 1, 3)
    ending.conclude(layout, launch=Place(0), own_code=6, facts={"command": "train"})
    result = read_result(layout)
    assert result is not None
    assert (result["exit_code"], result["first_failing_rank"], result["status"]) == (7, 2, "failed")


def test_records_of_an_earlier_launch_do_not_count(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    _record(layout, 1, 7, token="before")
    _record(layout, 0, 3)
    ending.conclude(layout, launch=Place(0), own_code=3, facts={})
    result = read_result(layout)
    assert result is not None
    assert (result["exit_code"], result["first_failing_rank"]) == (3, 0)


def test_a_signal_makes_the_run_interrupted(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    _record(layout, 0, 143)
    ending.conclude(layout, launch=Place(0), own_code=143, facts={})
    result = read_result(layout)
    assert result is not None
    assert (result["exit_code"], result["status"]) == (143, "interrupted")


def test_other_ranks_are_silent_while_rank_zero_lives(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    _beat(layout, 0, os.getpid())
    _record(layout, 1, 3)
    ending.conclude(layout, launch=Place(1), own_code=3, facts={})
    assert read_result(layout) is None


def test_the_survivor_speaks_for_a_rank_zero_that_vanished(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    _beat(layout, 0, _dead_pid())
    _record(layout, 1, 6)
    ending.conclude(layout, launch=Place(1, world_size=2), own_code=6, facts={"step": 4})
    result = read_result(layout)
    assert result is not None
    assert (result["exit_code"], result["first_failing_rank"]) == (6, 0)
    assert "without a record" in result["message"]
    assert result["last_collective"] == "#7 step 4 agreement"


def test_a_rank_that_beats_no_more_is_given_up_and_named(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    _beat(layout, 0, os.getpid())
    path = layout.heartbeat(0)
    beat = json.loads(path.read_bytes())
    old = {"monotonic_s": beat["monotonic_s"] - 60, "time": beat["time"] - 60}
    write_bytes_atomic(path, json.dumps({**beat, **old}).encode())
    _record(layout, 1, 6)
    ending.conclude(layout, launch=Place(1, world_size=2), own_code=6, facts={})
    result = read_result(layout)
    assert result is not None
    assert (result["exit_code"], result["first_failing_rank"]) == (6, 0)
    assert "no sign of life" in result["message"]


def test_of_ranks_that_only_waited_the_one_that_came_to_no_collective_is_first(
    tmp_path: Path,
) -> None:
    layout = RunLayout(tmp_path)
    for world_rank, stuck in ((0, False), (1, True), (2, False)):
        write_failure(layout, world_rank, exit_code=6, token="now", stuck=stuck)
    ending.conclude(layout, launch=Place(0), own_code=6, facts={})
    result = read_result(layout)
    assert result is not None
    assert (result["exit_code"], result["first_failing_rank"]) == (6, 1)
