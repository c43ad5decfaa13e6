"""`run stop` ends the ranks of a run and nothing else; `run watch` tells of it until it is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from solarwm.cli.app import run
from solarwm.runs.identity import ProcessIdentity, find, own_identity
from tests.conftest import ROOT


def _wait(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _beats(root: Path) -> list[dict]:
    found = []
    for path in sorted((root / "heartbeats").glob("rank-*.json")):
        found.append(json.loads(path.read_text()))
    return found


def test_a_running_run_is_watched_and_stopped_and_can_be_resumed(warm, tmp_path, capsys) -> None:
    root = tmp_path / "run"
    long = ("train.max_steps=2000", "runtime.save_every=1000")
    warm.train(root, *long, world_size=2, wait=False)
    _wait(
        lambda: (
            len(_beats(root)) == 2 and all((beat.get("step") or 0) >= 2 for beat in _beats(root))
        )
    )
    watched = subprocess.Popen(
        [sys.executable, "-m", "solarwm", "run", "watch", str(root), "--json", "--interval", "0.2"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert watched.stdout is not None
    first = json.loads(watched.stdout.readline())
    assert first["state"] == "running"
    assert first["outlook"]["seconds_left"] > 0
    assert {rank["world_rank"] for rank in first["ranks"]} == {0, 1}

    assert run(["run", "diagnose", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "healthy"
    assert run(["run", "stop", str(root), "--json"]) == 2  # nobody to ask, and no --yes
    assert "--yes" in capsys.readouterr().out
    assert run(["run", "stop", str(root), "--yes", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [item["world_rank"] for item in report["asked"]] == [0, 1]
    assert report["left"] == []
    ended = warm.join(2)
    assert ended.result["status"] == "interrupted"
    rest, _ = watched.communicate(timeout=60)
    last = json.loads(rest.splitlines()[-1])
    assert last["state"] == "interrupted"
    assert watched.returncode == ended.result["exit_code"]
    assert last["outlook"]["checkpoints"] == 1
    assert run(["run", "stop", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["asked"] == []
    step = ended.result["step"]
    resumed = warm.train(
        root, *long, world_size=2, options=("--resume", "latest", "--stop-after", str(step + 1))
    )
    assert resumed.codes == [0, 0], resumed.texts


@pytest.mark.parametrize("wrong", ["start", "command", "boot", "host"])
def test_a_process_that_only_has_the_number_is_left_alone(warm, tmp_path, capsys, wrong) -> None:
    root = tmp_path / "run"
    ended = warm.train(root, "train.max_steps=1")
    assert ended.codes == [0]
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        process = psutil.Process(sleeper.pid)
        _wait(lambda: process.cmdline()[-1:] == ["import time; time.sleep(60)"])
        path = root / "heartbeats" / "rank-00000.json"
        beat = json.loads(path.read_text())
        beat |= {
            "pid": sleeper.pid,
            "started_s": process.create_time(),
            "command": process.cmdline(),
        }
        beat |= {
            "start": {"started_s": process.create_time() - 60},
            "command": {"command": ["solarwm", "train"]},
            "boot": {"boot_id": "another"},
            "host": {"host": "another"},
        }[wrong]
        path.write_text(json.dumps(beat))
        assert run(["run", "stop", str(root), "--yes", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["asked"] == []
        assert [item["host"] for item in report["elsewhere"]] == (
            ["another"] if wrong == "host" else []
        )
        assert sleeper.poll() is None
        right = ProcessIdentity(
            pid=sleeper.pid, started_s=process.create_time(), command=tuple(process.cmdline())
        )
        assert find(right) is not None
    finally:
        sleeper.kill()
        sleeper.wait()
    assert find(right) is None
    assert find(own_identity(os.getpid())) is None  # never oneself


def test_half_an_event_line_and_a_strange_heartbeat_do_no_harm(warm, tmp_path, capsys) -> None:
    root = tmp_path / "run"
    assert warm.train(root, "train.max_steps=2", "runtime.save_every=1").codes == [0]
    with (root / "events" / "rank-00000.jsonl").open("a") as stream:
        stream.write('{"event": "optimizer_st')
    (root / "heartbeats" / "rank-00007.json").write_text("[1, 2")
    assert run(["run", "watch", str(root), "--once", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["state"], seen["step"], seen["outlook"]["checkpoints"]) == ("complete", 2, 2)
    assert run(["run", "stop", str(root), "--yes", "--json"]) == 0
    capsys.readouterr()
    (root / "run-result.json").unlink()
    assert run(["run", "diagnose", str(root), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "killed"
    assert any("--resume latest" in text for text in found["fixes"])
