"""A rank that is stopped, not ended: the others leave by the deadline, with a result that names it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from solarwm.runs.diagnosis import diagnose
from tests.fault.waiting import SLOW, wait_for_step

STUCK = """
import os, time
from solarwm.training import loop
real = loop._one_step
def one_step(*args, step, **more):
    if os.environ["RANK"] == "{rank}" and step == 2:
        time.sleep(60)
    return real(*args, step=step, **more)
loop._one_step = one_step
"""


def _until_ended(pid: int) -> None:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and psutil.pid_exists(pid):
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)


@pytest.mark.parametrize("hung", [0, 1])
def test_a_rank_that_hangs_is_named_by_the_other_after_the_deadline(
    warm, tmp_path: Path, hung: int
) -> None:
    root = tmp_path / "run"
    pids = warm.train(
        root,
        "train.max_steps=500",
        "distributed.timeout_s=4",
        world_size=2,
        patch=SLOW.format(pause=0.1),
        wait=False,
    )
    wait_for_step(root, 3)
    os.kill(pids[hung], signal.SIGSTOP)
    stopped_at = time.monotonic()
    try:
        _until_ended(pids[1 - hung])
        left_s = time.monotonic() - stopped_at
    finally:
        os.kill(pids[hung], signal.SIGKILL)
    ended = warm.join(2)
    assert left_s < 20
    assert ended.codes[1 - hung] == 6
    assert (ended.result["status"], ended.result["exit_code"]) == ("failed", 6)
    assert ended.result["first_failing_rank"] == hung
    assert diagnose(root).verdict == "hang"
    assert "no sign of life" in ended.result["message"]
    assert ended.result["last_checkpoint_step"] == 2
    assert hung in ended.result["missing_ranks"]
    assert sorted(ended.result["last_collectives"]) == ["0", "1"]


@pytest.mark.parametrize("stuck", [0, 1])
def test_a_rank_that_never_comes_to_a_collective_is_named_when_the_other_has_waited_enough(
    warm, tmp_path: Path, stuck: int
) -> None:
    patch = STUCK.format(rank=stuck)
    ended = warm.train(tmp_path / "run", "distributed.timeout_s=3", world_size=2, patch=patch)
    assert ended.codes == [6, 6]
    assert abs(ended.seconds[0] - ended.seconds[1]) < 10
    assert "in time" in ended.texts[1 - stuck]
    result = ended.result
    assert (result["exit_code"], result["first_failing_rank"]) == (6, stuck)
    assert (result["step"], result["phase"]) == (3, "train")
    assert "in one_step" in ended.failure(stuck)["traceback"]
    assert result["missing_ranks"] == [stuck]
    waiting, late = ended.failure(1 - stuck), ended.failure(stuck)
    assert waiting["inside_collective"]
    assert not late["inside_collective"]
    assert waiting["collective_counts"]["world"] == late["collective_counts"]["world"] + 1
    assert (
        waiting["recent_collectives"][-1]
        .split("#")[1]
        .startswith(str(waiting["collective_counts"]["world"]))
    )
    assert result["last_collectives"] == {
        str(stuck): late["last_collective"],
        str(1 - stuck): waiting["last_collective"],
    }
