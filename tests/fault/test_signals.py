"""SIGTERM and SIGINT at step 3: a clean stop, the right code, a valid checkpoint, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from solarwm.checkpoints.manifest import verify
from tests.fault.waiting import SLOW, wait_for_step

STUCK = """
import os, time
from solarwm.runs import signals
signals.BOUNDARY_S = 2.0
from solarwm.training import stage
real = stage.SingleRoleStage.backward
def backward(self, batch, *, step):
    if step == 2: time.sleep(120)
    return real(self, batch, step=step)
stage.SingleRoleStage.backward = backward
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_to_one_rank_stops_both_at_the_same_step(
    warm, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    root = tmp_path / "run"
    pids = warm.train(
        root, "train.max_steps=500", world_size=2, patch=SLOW.format(pause=0.2), wait=False
    )
    wait_for_step(root, 3)
    sent = time.monotonic()
    os.kill(pids[1], number)
    ended = warm.join(2)
    assert time.monotonic() - sent < 20
    assert ended.codes == [code, code]
    assert (ended.result["status"], ended.result["exit_code"]) == ("interrupted", code)
    assert "first_failing_rank" not in ended.result
    steps = [[record["step"] for record in ended.events(r)][-1] for r in (0, 1)]
    assert steps[0] == steps[1] == ended.result["step"]
    newest = max(ended.root.glob("checkpoint_model_*"))
    assert verify(newest, deep=True).manifest.step == steps[0]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_rank_that_reaches_no_step_boundary_leaves_with_its_result(warm, tmp_path: Path) -> None:
    root = tmp_path / "run"
    pids = warm.train(root, patch=STUCK, wait=False)
    wait_for_step(root, 2)
    os.kill(pids[0], signal.SIGTERM)
    ended = warm.join(1)
    assert ended.codes == [143]
    assert ended.result["status"] == "interrupted"
    assert (ended.result["step"], ended.result["phase"]) == (3, "train")
    assert verify(root / "checkpoint_model_000002", deep=True)


def test_sigterm_to_torchrun_leaves_a_result_a_checkpoint_and_no_process(
    warm, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    command = [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "solarwm",
        "train",
        *warm.settings(root, 2, ("train.max_steps=2000", "runtime.save_every=1000")),
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
    try:
        wait_for_step(root, 3)
        children = psutil.Process(agent.pid).children(recursive=True)
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)
    finally:
        agent.kill()
    assert agent.returncode != 0
    import json

    result = json.loads((root / "run-result.json").read_text())
    assert (result["status"], result["exit_code"]) == ("interrupted", 143)
    assert verify(max(root.glob("checkpoint_model_*")), deep=True).manifest.step == result["step"]
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_ranks_leave_within_ten_seconds_when_their_launcher_is_killed(warm, tmp_path: Path) -> None:
    root = tmp_path / "run"
    command = [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "solarwm",
        "train",
        *warm.settings(root, 2, ("train.max_steps=2000",)),
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    agent = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ
    )
    wait_for_step(root, 2)
    children = psutil.Process(agent.pid).children(recursive=True)
    agent.kill()
    agent.wait()
    _, alive = psutil.wait_procs(children, timeout=12)
    assert not alive
    assert '"exit_code": 6' in (root / "run-result.json").read_text()
