"""One rank fails: the others leave in seconds, and the result names the one that failed first."""

from __future__ import annotations

from pathlib import Path

import pytest

from solarwm.runs.diagnosis import diagnose

RAISE = """
import os
from solarwm.errors.types import SolarError
from solarwm.training import {module} as place
real = place.{name}
def broken(*args, **kwargs):
    if os.environ["RANK"] == "{rank}" and ({condition}):
        raise SolarError("shard.missing", "made to fail")
    return real(*args, **kwargs)
place.{name} = broken
"""
BACKWARD = """
import os, signal, time
from solarwm.errors.types import SolarError
from solarwm.training import stage
real = stage.SingleRoleStage.backward
def backward(self, batch, *, step):
    if os.environ["RANK"] == "{rank}" and step == 2:
        {act}
    return real(self, batch, step=step)
stage.SingleRoleStage.backward = backward
"""
STUCK = """
failing = stage.SingleRoleStage.backward
def stuck(self, batch, *, step):
    if os.environ["RANK"] == "0" and step == 2:
        time.sleep(60)
    return failing(self, batch, step=step)
stage.SingleRoleStage.backward = stuck
"""


def test_a_rank_that_raises_in_step_three_ends_all_ranks_within_ten_seconds(
    warm, tmp_path: Path
) -> None:
    act = 'raise SolarError("shard.truncated", "made to fail")'
    ended = warm.train(tmp_path / "run", world_size=2, patch=BACKWARD.format(rank=1, act=act))
    assert ended.codes == [6, 3]
    assert abs(ended.seconds[0] - ended.seconds[1]) < 10
    result = ended.result
    assert (result["status"], result["exit_code"], result["first_failing_rank"]) == ("failed", 3, 1)
    assert (result["step"], result["phase"], result["code"]) == (3, "train", "shard.truncated")
    assert ended.failure(1)["exit_code"] == 3
    assert ended.failure(0)["exit_code"] == 6
    assert "agreement" in ended.failure(0)["last_collective"]


def test_rank_zero_failing_is_told_by_rank_zero_itself(warm, tmp_path: Path) -> None:
    act = 'raise SolarError("shard.truncated", "made to fail")'
    ended = warm.train(tmp_path / "run", world_size=2, patch=BACKWARD.format(rank=0, act=act))
    assert ended.codes == [3, 6]
    assert (ended.result["exit_code"], ended.result["first_failing_rank"]) == (3, 0)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_is_named_by_the_survivor(warm, tmp_path: Path, killed: int) -> None:
    act = "os.kill(os.getpid(), signal.SIGKILL)"
    ended = warm.train(tmp_path / "run", world_size=2, patch=BACKWARD.format(rank=killed, act=act))
    assert ended.codes[killed] == -9
    assert ended.codes[1 - killed] == 6
    assert abs(ended.seconds[0] - ended.seconds[1]) < 10
    assert ended.result["exit_code"] == 6
    assert ended.result["first_failing_rank"] == killed
    assert diagnose(ended.root).verdict == "rank-lost"
    assert ended.result["written_by_rank"] == 1 - killed
    assert ended.result["last_checkpoint_step"] == 2
    assert (ended.root / "checkpoint_model_000002" / "COMPLETE.json").exists()


def test_a_rank_stuck_outside_any_collective_leaves_when_another_has_failed(
    warm, tmp_path: Path
) -> None:
    act = 'raise SolarError("shard.truncated", "made to fail")'
    patch = BACKWARD.format(rank=1, act=act) + STUCK
    ended = warm.train(tmp_path / "run", world_size=2, patch=patch)
    assert ended.codes == [6, 3]
    assert ended.seconds[0] - ended.seconds[1] < 10
    assert (ended.result["exit_code"], ended.result["first_failing_rank"]) == (3, 1)


def test_a_file_missing_for_one_rank_only_stops_both(warm, tmp_path: Path) -> None:
    patch = RAISE.format(module="engine", name="open_training_data", rank=1, condition="True")
    ended = warm.train(tmp_path / "run", world_size=2, patch=patch)
    assert ended.codes == [6, 3]
    assert max(ended.seconds) < 30
    assert ended.failure(1)["phase"] == "data"
    assert (ended.result["exit_code"], ended.result["first_failing_rank"]) == (3, 1)


def test_a_rank_failing_while_encoding_or_saving_stops_both(warm, tmp_path: Path) -> None:
    for phase, module, name in (
        ("encode", "engine", "open_clips"),
        ("save", "health", "check_weights"),
    ):
        patch = RAISE.format(module=module, name=name, rank=1, condition="True")
        ended = warm.train(tmp_path / phase, world_size=2, patch=patch)
        assert ended.codes == [6, 3]
        assert abs(ended.seconds[0] - ended.seconds[1]) < 10
        assert (ended.result["first_failing_rank"], ended.result["phase"]) == (1, phase)


def test_a_bug_on_one_rank_leaves_its_traceback(warm, tmp_path: Path) -> None:
    ended = warm.train(
        tmp_path / "run", world_size=2, patch=BACKWARD.format(rank=1, act='raise KeyError("oops")')
    )
    assert ended.codes == [6, 70]
    assert (ended.result["exit_code"], ended.result["error_type"]) == (70, "KeyError")
    assert "oops" in ended.failure(1)["traceback"]
