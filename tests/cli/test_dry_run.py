"""`--dry-run`: everything up to allocation, nothing written, the code a start would have."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solarwm.cli.app import run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "configs" / "examples"
QUICK = EXAMPLES / "quickstart" / "stage0p5.yaml"
Dry = Callable[..., dict[str, Any]]
LAUNCHER = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


@pytest.fixture
def dry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dry:
    """The report of a dry run in an empty directory, with the launcher variables that are given."""
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run_dry(*args: str, command: str = "train", **environ: str) -> dict[str, Any]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        code = run([command, *args, "--dry-run", "--json"])
        report = json.loads(capsys.readouterr().out)
        assert code == report["exit_code"]
        assert list(tmp_path.iterdir()) == []
        return report

    return run_dry


def filled(world: Path, *more: str) -> list[str]:
    places = [f"data.index_root={world}", f"data.transport.root={world}"]
    sets = [*places, "data.pixel_frames=33", *more]
    return ["--config", str(QUICK), *(word for text in sets for word in ("--set", text))]


def codes(report: dict[str, Any]) -> list[str]:
    return [fault["code"] for fault in report["faults"]]


def test_a_run_that_could_start_shows_all_it_would_do(
    tmp_path: Path, small_world: Path, dry: Dry
) -> None:
    sets = ("distributed.world_size=1", "train.grad_accum=2", "train.max_steps=800")
    report = dry(*filled(small_world, *sets))
    assert report["exit_code"] == 0
    assert report["topology"]["equation"] == "(1 / 1) x 2 x 2 = 4"
    assert report["run_directory"] == str(tmp_path / "outputs" / "quickstart-stage0p5")
    (index,) = report["indexes"]
    rows = json.loads("[" + ",".join(_lines(Path(index["path"]))[:3]) + "]")
    assert index["first_samples"] == [row["sample_id"] for row in rows]
    assert report["model"]["device"] == "meta"
    assert report["model"]["parameters"] > 1_000_000
    assert report["model"]["optimizer_bytes"] == 8 * report["model"]["trainable"]
    names = [Path(path).name for path in report["files"]]
    assert {
        "resolved-config.json",
        "launch-manifest.json",
        "run-result.json",
        "rank-00000.jsonl",
    } <= set(names)
    assert [name for name in names if name.startswith("checkpoint_model_")] == [
        f"checkpoint_model_{step:06d}" for step in (200, 400, 600, 800)
    ]


def test_placeholders_are_listed_and_a_start_would_end_with_2(dry: Dry) -> None:
    report = dry(
        "--config",
        str(QUICK),
        "--set",
        "distributed.world_size=1",
        "--set",
        "train.grad_accum=2",
    )
    assert report["exit_code"] == 2
    assert codes(report) == ["config.placeholder"] * len(report["placeholders"])


def test_files_and_directories_that_stop_a_start_stop_the_dry_run_alike(
    tmp_path: Path, small_world: Path, dry: Dry
) -> None:
    sets = ("distributed.world_size=1", "train.grad_accum=2", "data.pixel_frames=33")
    lacking = tmp_path.with_name(f"{tmp_path.name}-lacking")
    shutil.copytree(small_world, lacking)
    next(lacking.rglob("*.tar")).unlink()
    taken = tmp_path.with_name(f"{tmp_path.name}-taken")
    taken.mkdir()
    (taken / "resolved-config.json").write_text("{}")
    for args, options, code, exit_code in (
        (filled(small_world, *sets[:2], "data.pixel_frames=81"), (), "index.too-few-frames", 3),
        (filled(lacking, *sets), (), "shard.missing", 3),
        (filled(small_world, *sets), ("--resume", "latest"), "run.nothing-to-resume", 3),
        (
            filled(small_world, *sets, f"runtime.output_dir={taken}"),
            (),
            "run.directory-taken",
            2,
        ),
    ):
        report = dry(*args, *options)
        assert (codes(report), report["exit_code"]) == ([code], exit_code)
        assert run(["train", *args, *options]) == exit_code
        assert list(tmp_path.iterdir()) == []


def test_a_route_that_is_not_built_is_refused_before_anything_is_written(
    tmp_path: Path, small_world: Path, dry: Dry
) -> None:
    tiny = tmp_path.with_name(f"{tmp_path.name}-tiny")
    name = "stage0p5-158f-lora384-sp2"
    copying = ["config", "copy", f"minimax_h3/{name}", str(tiny), "--tiny"]
    assert run([*copying, "--world", "1", "--sp", "1"]) == 0
    sets = [f"data.index_root={small_world}", f"data.transport.root={small_world}"]
    args = ["--config", str(tiny / f"{name}.yaml")]
    args += [word for text in sets for word in ("--set", text)]
    assert run(["train", *args]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_files_that_are_shown_are_the_files_of_a_start(
    tmp_path: Path, small_world: Path, dry: Dry
) -> None:
    args = filled(
        small_world,
        "distributed.world_size=1",
        "train.grad_accum=2",
        "data.pixel_frames=33",
        "train.max_steps=2",
        "train.warmup_steps=0",
        "runtime.save_every=1",
        "runtime.output_dir=run",
    )
    shown = {str(Path(path).relative_to(tmp_path / "run")) for path in dry(*args)["files"]}
    for options in (("--stop-after", "1"), ("--resume", "latest")):
        done = subprocess.run(
            [sys.executable, "-m", "solarwm", "train", *args, *options],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
    tops = {Path(name).parts[0] for name in shown}
    assert {path.name for path in (tmp_path / "run").iterdir()} == tops
    assert all((tmp_path / "run" / name).exists() for name in shown)
    identities = [
        micro["identity"]
        for line in (tmp_path / "run" / "events" / "rank-00000.jsonl").read_text().splitlines()
        for micro in json.loads(line).get("microbatches", ())
    ]
    assert [identity["checkpoint_id"] for identity in identities] == [
        *["", ""],
        *["checkpoint_model_000001"] * 2,
    ]
    published = {"sample_ids", "start_frames", "noise_seeds", "checkpoint_id", "plan_fingerprint"}
    assert all(published <= set(identity) for identity in identities)


def test_missing_roots_and_indexes_end_with_3(tmp_path: Path, small_world: Path, dry: Dry) -> None:
    sets = ("distributed.world_size=1", "train.grad_accum=2")
    report = dry(*filled(small_world, *sets, "data.transport.root=/nowhere/at/all"))
    assert (report["exit_code"], codes(report)) == (3, ["assets.missing"])
    report = dry(*filled(small_world, *sets, "data.train_index=none.jsonl.gz"))
    assert report["exit_code"] == 3
    assert codes(report)[0].startswith("index.")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        {"RANK": "3", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        {"RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_RANK": "0"},
    ],
    ids=["none", "one of 16", "rank outside", "only RANK", "no LOCAL_WORLD_SIZE"],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_launch_that_is_not_the_one_of_the_config_ends_with_5(
    tmp_path: Path, small_world: Path, environ: dict[str, str], dry_run: bool, dry: Dry
) -> None:
    args = filled(small_world, "distributed.world_size=16", "train.global_batch_size=32")
    if dry_run:
        report = dry(*args, **environ)
        assert report["exit_code"] == 5
        fault = report["faults"][0]
        assert "seen: " in fault["why"]
        assert "expected: " in fault["why"] or "seen" in fault["why"]
        assert report["launcher"]["expected"] == 16
        return
    kept = {key: value for key, value in os.environ.items() if key not in LAUNCHER}
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", "train", *args],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), **environ},
    )
    assert done.returncode == 5, done.stderr
    assert "WORLD_SIZE" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_released_model_is_measured_without_allocating_it(dry: Dry) -> None:
    path = EXAMPLES / "wan22_ti2v_5b" / "train_stage0p5_fm_81f.yaml"
    model = dry("--config", str(path))["model"]
    assert 4.9e9 < model["parameters"] < 5.4e9


def test_infer_and_preencode_have_dry_runs_too(dry: Dry) -> None:
    infer = dry(
        "--config",
        str(EXAMPLES / "wan22_ti2v_5b" / "infer_stage0p5_fm_81f.yaml"),
        command="infer",
    )
    assert {"model.base_path", "checkpoint.path"} <= set(infer["placeholders"])
    path = EXAMPLES / "wan22_ti2v_5b" / "preencode_153f.yaml"
    preencode = dry("--config", str(path), command="preencode")
    assert preencode["model"]["parameters"] is None
    assert preencode["exit_code"] == 2


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()
