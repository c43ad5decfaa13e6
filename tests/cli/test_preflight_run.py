"""`solarwm preflight` really runs: every gate of a sound config, and the first that does not hold of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from solarwm.cli.app import run
from solarwm.runs.gates import GATES
from tests.conftest import QUICKSTART, ROOT


def _words(world: Path, root: Path, *more: str) -> list[str]:
    sets = [
        f"data.index_root={world}", f"data.transport.root={world}", "data.pixel_frames=33",
        "distributed.world_size=1", "train.grad_accum=2", "train.warmup_steps=1",
        f"runtime.output_dir={root / 'run'}", *more,
    ]  # fmt: skip
    pairs = [word for item in sets for word in ("--set", item)]
    return ["preflight", "--config", str(QUICKSTART), *pairs, "--json"]


def _process(words: list[str]) -> tuple[int, dict]:
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", *words], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_sound_config_passes_every_gate_and_leaves_nothing(small_world, tmp_path):
    passes = [{"name": "right", "weights": "live", "solver": "euler", "num_inference_steps": 1}]
    validation = ("validation.sample_count=1", f"validation.passes={json.dumps(passes)}")
    validation += ("runtime.validate_every=2",)
    code, report = _process(_words(small_world, tmp_path, *validation))
    assert code == 0, report
    assert [gate["name"] for gate in report["gates"]] == list(GATES)
    assert all(gate["passed"] for gate in report["gates"])
    assert report["failed_gate"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_torn_video_stops_at_the_gate_of_samples_with_the_run_s_code(small_world, tmp_path):
    import shutil

    world = tmp_path / "world"
    shutil.copytree(small_world, world)
    for shard in world.rglob("*.tar"):
        with tarfile.open(shard) as archive:
            videos = [m for m in archive.getmembers() if m.name.endswith(".mp4")]
        data = bytearray(shard.read_bytes())
        for member in videos:
            start = member.offset_data + member.size // 3
            data[start : start + member.size // 2] = bytes(member.size // 2)
        shard.write_bytes(data)
    code, report = _process(_words(world, tmp_path))
    assert (code, report["failed_gate"]) == (3, "samples read")
    assert report["diagnosis"]["verdict"] == "data"
    assert "solarwm train" in report["again"] or "-m solarwm train" in report["again"]
    assert "optimizer stepped" in report["not_reached"]


def test_assets_are_looked_at_first_and_alone(small_world, tmp_path, capsys):
    words = _words(small_world, tmp_path)
    assert run([*words, "--assets-only"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    assert run([*words[:-1], "--set", f"data.transport.root={tmp_path / 'gone'}", "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["failed_gate"] == "assets"
    assert "data.transport.root missing" in report["gates"][-1]["told"]
    assert not (tmp_path / "run-preflight").exists()
