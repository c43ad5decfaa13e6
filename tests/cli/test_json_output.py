"""`--json` on every command: one JSON value on standard output, on success and on error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from solarwm.cli.app import run
from solarwm.cli.completion import TABLE

ROOT = Path(__file__).parents[2]
QUICK = ROOT / "configs" / "examples" / "quickstart"
LEAVES = sorted(
    path
    for path, item in json.loads(TABLE.read_bytes())["commands"].items()
    if not item["commands"]
)

# What each command is called with: words in braces stand for the places of the fixture.
GOOD: dict[str, list[str]] = {
    "checkpoint convert": ["{run}", "{new}/out.safetensors"],
    "checkpoint inspect": ["{run}"],
    "checkpoint list": ["{run}"],
    "checkpoint merge": ["--selftest"],
    "checkpoint prune": ["{run}", "--keep-last", "1"],
    "checkpoint quantize": ["{run}", "{new}/small.safetensors"],
    "checkpoint verify": ["{run}"],
    "config check": ["{config}"],
    "config copy": ["quickstart/stage0p5", "{new}"],
    "config diff": ["{config}", "{run}"],
    "config list": [],
    "config resolve": ["--config", "{config}", "--output", "{new}/resolved.json"],
    "config routes": [],
    "config schema": [],
    "config show": ["quickstart/stage0p5"],
    "data inspect": ["{world}/train-index.jsonl.gz"],
    "data plan": ["{world}/train-index.jsonl.gz", "--seed", "1", "--pixel-frames", "33"],
    "data synthesize": ["--out", "{new}", "--clips", "2", "--frames", "5", "--height", "32", "--width",
                        "32", "--seed", "0"],
    "data validate": ["{world}/train-index.jsonl.gz", "--pixel-frames", "33"],
    "environment probe": [],
    "explain": ["config.batch"],
    "launch": ["--config", "{config}", "--dry-run"],
    "plan memory": ["--config", "{config}"],
    "run diagnose": ["{run}"],
    "run list": ["{runs}"],
    "run report": ["{run}", "--out", "{new}/report.html"],
    "run resume-check": ["{run}"],
    "run status": ["{run}"],
    "run stop": ["{run}"],
    "run watch": ["{run}", "--once"],
    "validation plan": ["--config", "configs/examples/quickstart/infer.yaml", "--set",
                        "data.index_root={world}", "--set", "data.transport.root={world}", "--set",
                        "data.pixel_frames=33", "--set", "validation.sample_count=1"],
}  # fmt: skip
# Commands whose good ending is seen elsewhere in this file, or elsewhere in the suite.
ELSEWHERE = {
    "train", "infer", "preencode", "compare", "data import", "data encode-negative",
    "data materialize-wan153f", "data warm-cache", "checkpoint export", "play", "preflight",
}  # fmt: skip
BAD = {
    "checkpoint convert": ["{new}/none", "{new}/out.safetensors"],
    "checkpoint merge": ["--base", "{new}/none", "--output", "{new}/out.pt"],
    "checkpoint quantize": ["{new}/none", "{new}/out.safetensors"],
    "play": ["--config", "{config}", "--port", "0"],
    "preflight": ["--config", "{new}/none.yaml"],
    "checkpoint export": ["{new}/none", "--output", "{new}/out"],
    "checkpoint inspect": ["{new}/none"],
    "checkpoint list": ["{new}/none"],
    "checkpoint prune": ["{new}/none", "--keep-last", "1"],
    "checkpoint verify": ["{new}/none"],
    "compare": ["{new}/none", "{new}/none"],
    "config check": ["{new}/none.yaml"],
    "config copy": ["no-such-example", "{new}"],
    "config diff": ["{config}", "{new}/none.yaml"],
    "config list": ["--nonsense"],
    "config resolve": ["--config", "{config}", "--set", "train.lerning_rate=1"],
    "config routes": ["a:b:c", "--nonsense"],
    "config schema": ["--route", "no:such:route"],
    "config show": ["no-such-example"],
    "data encode-negative": ["--nonsense"],
    "data import": ["{new}/none", "--out", "{new}"],
    "data inspect": ["{new}/none.jsonl"],
    "data materialize-wan153f": ["--nonsense"],
    "data plan": ["{new}/none.jsonl", "--seed", "1", "--pixel-frames", "33"],
    "data synthesize": ["--out", "{new}", "--clips", "0", "--frames", "5", "--height", "32", "--width",
                        "32", "--seed", "0"],
    "data validate": ["{new}/none.jsonl", "--pixel-frames", "33"],
    "data warm-cache": ["--nonsense"],
    "environment probe": ["--nonsense"],
    "explain": ["no.such-code"],
    "infer": ["--config", "{config}"],
    "launch": ["--config", "{new}/none.yaml", "--dry-run"],
    "plan memory": ["--config", "{new}/none.yaml"],
    "preencode": ["--config", "{config}"],
    "run diagnose": ["{new}/none"],
    "run list": ["--nonsense"],
    "run report": ["{new}/none"],
    "run resume-check": ["{new}/none"],
    "run status": ["{new}/none"],
    "run stop": ["{new}/none"],
    "run watch": ["{new}/none"],
    "train": ["--config", "{new}/none.yaml"],
    "validation plan": ["--config", "{new}/none.yaml"],
}  # fmt: skip


def sets(**values: object) -> list[str]:
    return [
        word
        for key, value in values.items()
        for word in ("--set", f"{key.replace('__', '.')}={value}")
    ]


def process(*words: object, code: int) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def places(small_world: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A world, a run of one step, and the config it was made with."""
    runs = tmp_path_factory.mktemp("runs")
    result = process(
        *("train", "--config", QUICK / "stage0p5.yaml"),
        *sets(data__index_root=small_world, data__transport__root=small_world),
        *sets(data__pixel_frames=33, distributed__world_size=1, runtime__output_dir=runs / "one"),
        *sets(train__max_steps=1, train__global_batch_size=2, train__warmup_steps=0),
        code=0,
    )
    assert (result["exit_code"], result["schema"]) == (0, "solarwm.run-result.v1")
    assert result == json.loads((runs / "one" / "run-result.json").read_text())
    config = runs / "one" / "resolved-config.json"
    return {"world": small_world, "runs": runs, "run": runs / "one", "config": config}


def called(
    path: str, words: list[str], places: dict[str, Path], tmp_path: Path, capsys: Any
) -> tuple[int, Any]:
    known = {name: str(place) for name, place in places.items()} | {"new": str(tmp_path)}
    capsys.readouterr()
    code = run([*path.split(), *(word.format(**known) for word in words), "--json"])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, json.loads(out)


def test_every_command_has_a_row_here() -> None:
    assert set(LEAVES) <= {*GOOD, *ELSEWHERE}, "add the new command to GOOD (or ELSEWHERE)"
    assert set(LEAVES) <= set(BAD), "add the new command to BAD"


@pytest.mark.parametrize("path", sorted({*GOOD} & {*LEAVES}))
def test_a_good_call_prints_one_json_value(
    path: str, places: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    code, value = called(path, GOOD[path], places, tmp_path, capsys)
    assert code == 0
    assert value


@pytest.mark.parametrize("path", sorted({*BAD} & {*LEAVES}))
def test_a_bad_call_prints_its_faults_with_the_exit_code(
    path: str, places: dict[str, Path], tmp_path: Path, capsys: Any
) -> None:
    code, value = called(path, BAD[path], places, tmp_path, capsys)
    assert code in (2, 3)
    if path == "config check":
        assert value["files"][0]["exit_code"] == code
        faults = value["files"][0]["faults"]
    else:
        assert value["schema"] == "solarwm.error.v1"
        assert value["exit_code"] == code
        faults = value["faults"]
    assert all(fault["fixes"] and fault["headline"] and fault["code"] for fault in faults)
    assert list(tmp_path.iterdir()) == []


def test_training_and_generation_print_the_result_of_the_run(
    places: dict[str, Path], tmp_path: Path
) -> None:
    common = [
        *sets(data__index_root=places["world"], data__transport__root=places["world"]),
        *sets(
            data__pixel_frames=33, distributed__world_size=1, runtime__output_dir=tmp_path / "out"
        ),
    ]
    passes = json.dumps(
        [{"name": "p", "weights": "live", "solver": "euler", "num_inference_steps": 1}]
    )
    result = process(
        *("infer", "--config", QUICK / "infer.yaml", *common),
        *sets(
            checkpoint__path=places["run"], validation__sample_count=1, validation__passes=passes
        ),
        code=0,
    )
    assert result == json.loads((tmp_path / "out" / "run-result.json").read_text())
    words = ("train", "--config", places["config"])
    taken = process(*words, code=2)
    assert taken["code"] == "run.directory-taken"
    dry = process(*words, "--dry-run", "--resume", "latest", code=0)
    assert dry["command"] == "train"


def test_an_interrupt_is_told_as_json_too(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("solarwm.cli.environment.survey", interrupted)
    assert run(["environment", "probe", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["code"] == "run.interrupted"
