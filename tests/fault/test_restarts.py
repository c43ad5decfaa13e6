"""torchrun starts all ranks again after one was killed: the run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from solarwm.checkpoints.manifest import read_manifest
from solarwm.runs.events import effective_events

KILLED_ONCE = """
import os, signal, sys
from solarwm.training import loop
real = loop._one_step
def one_step(*args, step, **more):
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if step == 3 and first and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, step=step, **more)
loop._one_step = one_step
from solarwm.cli.app import main
main()
"""


def _weights(root: Path) -> list[str]:
    files = read_manifest(root / "checkpoint_model_000004").files
    members = ("student-model/", "student-ema/")
    return [file.blake2b for file in files if file.path.startswith(members)]


def test_a_group_that_torchrun_restarts_goes_on_from_its_last_checkpoint(
    warm, tmp_path: Path
) -> None:
    script, root = tmp_path / "rank.py", tmp_path / "run"
    script.write_text(KILLED_ONCE)
    command = [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1",
        str(script),
        "train",
        *warm.settings(root, 2, ()),
        "--resume",
        "latest",
        "--allow-fresh",
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=240)
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads((root / "run-result.json").read_text())
    assert (result["status"], result["exit_code"], result["step"]) == ("complete", 0, 4)
    assert not list((root / "ranks").glob("*.failure.json"))
    told = effective_events(root / "events" / "rank-00000.jsonl")
    assert [event["step"] for event in told if event["event"] == "resume"] == [2]
    steps = [event for event in told if event["event"] == "optimizer_step"]
    assert [event["step"] for event in steps] == [1, 2, 3, 4]
    plain = warm.train(tmp_path / "plain", world_size=2)
    assert [event["losses"] for event in steps] == [event["losses"] for event in plain.events()]
    assert len(_weights(root)) == 6
    assert _weights(root) == _weights(plain.root)
