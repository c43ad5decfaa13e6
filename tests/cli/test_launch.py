"""`solarwm launch`: what a shell, SLURM and Kubernetes are given means exactly the words that are meant."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from solarwm.cli.app import run
from tests.conftest import QUICKSTART, ROOT

RELEASED = ROOT / "configs" / "examples" / "wan22_ti2v_5b" / "train_stage0p5_fm_81f.yaml"
HOSTILE = 'name=it\'s a "run" $(touch ran) `x` \\ *'


def plan(capsys, *words: object, code: int = 0) -> dict:
    assert run(["launch", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def _tools(folder: Path) -> dict[str, str]:
    """Programs of those names that print their words, one a line, after a mark."""
    folder.mkdir()
    scripts = {
        "torchrun": 'printf "%s\\n" "== $SLURM_NODEID" "$@"',
        "srun": 'shift; for node in 0 1; do SLURM_NODEID=$node "$@"; done',
        "scontrol": "printf 'first\\nsecond\\n'",
    }
    for name, text in scripts.items():
        path = folder / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n[1-2]"}


def _bash(text: str, env: dict[str, str], folder: Path) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", text], env=env, cwd=folder, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _expected(node: int, nodes: int, host: str, name: str, rest: list[str]) -> list[str]:
    meet = [f"--nnodes={nodes}", f"--node-rank={node}", "--rdzv-backend=c10d"]
    meet += [f"--rdzv-endpoint={host}:29500", f"--rdzv-id={name}"]
    return [*meet, "--nproc-per-node=1", "-m", "solarwm", *rest]


def test_commands_and_scripts_mean_their_words_in_a_real_shell(tmp_path, capsys):
    env = _tools(tmp_path / "bin")
    words = (
        "--config",
        QUICKSTART,
        "--set",
        HOSTILE,
        "--nodes",
        2,
        "--gpus",
        1,
        "--resume",
        "latest",
    )
    rest = ["train", "--config", str(QUICKSTART), "--set", HOSTILE, "--resume", "latest"]
    report = plan(capsys, *words, "--host", "10.0.0.1", "--dry-run")
    name = "it-s-a--run----touch-ran---x"
    for node, line in enumerate(report["commands"]):
        assert _bash(line, env, tmp_path)[1:] == _expected(node, 2, "10.0.0.1", name, rest)
    script = plan(capsys, *words, "--target", "slurm", "--dry-run")["text"]
    told = _bash(script, {**env, "RANK": "3"}, tmp_path)
    first = _expected(0, 2, "first", name, rest)
    assert told == ["== 0", *first, "== 1", *_expected(1, 2, "first", name, rest)]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["pytorchjob", "jobset"])
def test_manifests_hold_the_same_words(capsys, kind):
    words = (
        "--config",
        RELEASED,
        "--target",
        "kubernetes",
        "--kind",
        kind,
        "--image",
        "img",
        "--dry-run",
    )
    report = plan(capsys, *words)
    assert (report["nodes"], report["processes_per_node"]) == (32, 8)
    document = yaml.safe_load(report["text"])
    spec = document["spec"]
    if kind == "pytorchjob":
        replicas = spec["pytorchReplicaSpecs"]
        assert (replicas["Master"]["replicas"], replicas["Worker"]["replicas"]) == (1, 31)
        pod = replicas["Worker"]["template"]["spec"]
        assert replicas["Master"]["template"]["spec"] == pod
    else:
        job = spec["replicatedJobs"][0]["template"]["spec"]
        assert (job["parallelism"], job["completions"]) == (32, 32)
        pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["command"][0] == "torchrun"
    assert container["command"][-3:] == ["train", "--config", str(RELEASED)]
    assert "*" not in report["text"].replace("*)", "")


def test_what_does_not_make_the_world_is_refused_with_what_does(capsys):
    answer = plan(capsys, "--config", RELEASED, "--nodes", 3, "--dry-run", code=5)
    assert answer["code"] == "launcher.mismatch"
    assert "--nodes 2 --gpus 128" in json.dumps(answer)
    assert plan(capsys, "--config", RELEASED, "--gpus", 4, "--dry-run")["nodes"] == 64
    assert plan(capsys, "--config", RELEASED, "--yes", code=2)["code"] == "cli.usage"


def test_assets_and_leftovers_of_another_launch_are_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.9")
    (tmp_path / "train-index.jsonl.gz").mkdir()
    (tmp_path / "test-index.jsonl.gz").write_bytes(b"x")
    sets = [f"data.index_root={tmp_path}", f"data.transport.root={tmp_path / 'gone'}"]
    sets += [f"runtime.output_dir={tmp_path / 'out'}"]
    words = [word for item in sets for word in ("--set", item)]
    report = plan(capsys, "--config", QUICKSTART, *words, "--dry-run")
    assert [text.split("=")[0] for text in report["warnings"]] == ["RANK", "MASTER_ADDR"]
    states = {row["key"]: row["state"] for row in report["assets"]}
    assert states["data.transport.root"] == "missing"
    assert states["data.train_index"] == "wrong kind"
    assert states["data.test_index"] == "present"
    assert report["assets"][-1]["free_bytes"] > 0
    assert str(tmp_path / "out" / "resolved-config.json") in report["files"]
    assert not (tmp_path / "out").exists()


def test_a_dry_run_needs_no_torch():
    code = (
        "import sys; from solarwm.cli.app import run\n"
        "assert run(sys.argv[1:]) == 0; assert 'torch' not in sys.modules"
    )
    words = ["launch", "--config", str(RELEASED), "--target", "slurm", "--dry-run", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_yes_really_starts_it_without_the_leftovers(small_world, tmp_path):
    sets = [
        f"data.index_root={small_world}", f"data.transport.root={small_world}", "data.pixel_frames=33",
        "train.max_steps=1", "train.warmup_steps=1", f"runtime.output_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    words = [word for item in sets for word in ("--set", item)]
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", "launch", "--config", str(QUICKSTART), *words, "--yes"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANK": "7", "WORLD_SIZE": "9"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "run-result.json").read_text())
    assert (result["status"], result["step"]) == ("complete", 1)
    assert len(list((tmp_path / "run" / "events").iterdir())) == 2
