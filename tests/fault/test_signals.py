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


def _wait_for_phase(root: Path, phase: str, world_rank: int = 0) -> None:
    path = root / "heartbeats" / f"rank-{world_rank:05d}.json"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if f'"phase":"{phase}"' in path.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"phase {phase} was never reached")


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


SLOW_SAVE = """
import time
from solarwm.checkpoints.transaction import SaveTransaction
real_publish = SaveTransaction._publish
def publish(self, *args):
    if self._step > 2: time.sleep(60)
    return real_publish(self, *args)
SaveTransaction._publish = publish
"""


def test_a_second_signal_during_the_save_leaves_at_once_and_the_checkpoint_before_stays(
    warm, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    patch = SLOW.format(pause=0.5) + SLOW_SAVE
    sets = ("train.max_steps=500", "runtime.save_every=2")
    (pid,) = warm.train(root, *sets, patch=patch, wait=False)
    wait_for_step(root, 3)
    os.kill(pid, signal.SIGTERM)
    _wait_for_phase(root, "save")
    time.sleep(2.2)
    os.kill(pid, signal.SIGTERM)
    sent = time.monotonic()
    ended = warm.join(1)
    assert time.monotonic() - sent < 10
    assert ended.codes == [143]
    assert (ended.result["status"], ended.result["phase"]) == ("interrupted", "save")
    assert ended.result["last_checkpoint_step"] == 2
    assert [path.name for path in root.glob("checkpoint_*")] == ["checkpoint_model_000002"]
    assert verify(root / "checkpoint_model_000002", deep=True)
    again = warm.train(
        root, *sets, "train.max_steps=3", options=("--resume", "latest"), patch=SLOW.format(pause=0)
    )
    assert again.codes == [0]
    assert [record["step"] for record in again.events()][-1] == 3


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
