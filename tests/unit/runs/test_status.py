"""What a run directory says about its run."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from solarwm.errors.types import SolarError
from solarwm.runs.failure import clear_failures, read_failures, write_failure
from solarwm.runs.heartbeat import age_s, read_heartbeat, write_heartbeat
from solarwm.runs.layout import RunLayout
from solarwm.runs.result import clear_result, read_result, write_result
from solarwm.runs.status import find_runs, read_status
from solarwm.storage.locks import DirectoryLock


def started(root: Path) -> RunLayout:
    """A directory in which a launch wrote its first file."""
    root.mkdir(parents=True, exist_ok=True)
    layout = RunLayout(root)
    layout.resolved_config.write_text("{}\n")
    return layout


def test_a_run_whose_lock_is_held_is_running_and_a_killed_one_has_died(tmp_path: Path) -> None:
    for _ in range(3):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            layout = started(tmp_path)
            DirectoryLock(tmp_path).acquire({"command": "train"})
            write_heartbeat(layout, 0, step=7, phase="train")
            os.write(writing, b"x")
            time.sleep(30)
            os._exit(0)
        os.read(reading, 1)
        assert read_status(tmp_path).state == "running"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
        status = read_status(tmp_path)
        assert status.state == "died"
        assert status.step == 7
        assert status.last_time is not None
        assert status.ranks[0].phase == "train"
        json.dumps(status.plain())


def test_a_result_is_told_and_a_new_start_takes_it_away(tmp_path: Path) -> None:
    layout = started(tmp_path)
    write_result(layout, status="failed", exit_code=7, step=5, message="loss is nan", phase="train")
    status = read_status(tmp_path)
    assert (status.state, status.exit_code, status.step) == ("failed", 7, 5)
    assert read_result(layout)["schema"] == "solarwm.run-result.v1"  # type: ignore[index]
    with DirectoryLock(tmp_path):
        assert read_status(tmp_path).state == "running"
    clear_result(layout)
    clear_result(layout)
    assert read_status(tmp_path).state == "died"
    with pytest.raises(ValueError, match="not one of"):
        write_result(layout, status="fine", exit_code=0)


def test_a_heartbeat_of_another_machine_counts_while_it_is_fresh(tmp_path: Path) -> None:
    layout = started(tmp_path)
    lock = DirectoryLock(tmp_path).acquire({"host": "elsewhere"})
    lock.release()
    write_heartbeat(layout, 0, step=1)
    assert read_status(tmp_path).state == "running"
    beat = read_heartbeat(layout, 0)
    assert beat is not None
    beat |= {"time": time.time() - 3600, "host": "elsewhere"}
    layout.heartbeat(0).write_text(json.dumps(beat))
    assert read_status(tmp_path).state == "died"


def test_the_age_of_a_heartbeat_does_not_follow_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = RunLayout(tmp_path)
    write_heartbeat(layout, 0, step=1)
    beat = read_heartbeat(layout, 0)
    assert beat is not None
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real - 7200)
    age = age_s(beat)
    assert age is not None
    assert age < 60


def test_failure_records_are_read_by_rank_and_bad_ones_left_out(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    write_failure(layout, 1, exit_code=7, phase="train", step=3, context={"sample_ids": ("a",)})
    write_failure(layout, 0, exit_code=6, phase="train", step=3)
    layout.failure(2).write_text('{"world_rank": 2')
    layout.failure(3).write_text('{"world_rank": 3, "exit_code": "x", "time": 1}')
    found = read_failures(layout)
    assert [(record["world_rank"], record["exit_code"]) for record in found] == [(0, 6), (1, 7)]
    assert found[1]["context"] == {"sample_ids": ["a"]}
    clear_failures(layout)
    assert read_failures(layout) == []


def test_runs_are_found_below_a_directory_and_nowhere_else(tmp_path: Path) -> None:
    for name in ("b", "a/inner", "a/inner/checkpoint/run"):
        started(tmp_path / name)
    (tmp_path / "notes").mkdir()
    assert find_runs(tmp_path) == [tmp_path / "a" / "inner", tmp_path / "b"]
    with pytest.raises(SolarError) as told:
        read_status(tmp_path / "notes")
    assert told.value.exit_code == 3
