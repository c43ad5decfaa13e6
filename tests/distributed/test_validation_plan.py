"""What a run validates is frozen at its first validation: a move and other ranks change nothing, other
clips or passes are refused by the field that differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from solarwm.cli.validation import _lines
from solarwm.config.examples import find
from solarwm.config.resolve import resolve
from solarwm.config.tiny import twin
from solarwm.errors.types import SolarError
from solarwm.inference import frozen_plan

INFER = Path(__file__).parents[2] / "configs" / "examples" / "quickstart" / "infer.yaml"
PASSES = json.dumps(
    [{"name": "live", "weights": "live", "solver": "euler", "num_inference_steps": 1}]
)


def _planned(world: Path, output: Path, *sets: str) -> dict:
    values = (
        f"data.index_root={world}",
        f"data.transport.root={world}",
        "data.pixel_frames=33",
        f"validation.passes={PASSES}",
        "validation.sample_count=2",
        f"runtime.output_dir={output}",
        *sets,
    )
    return frozen_plan.planned(resolve(INFER, values), working_directory=output.parent)


def test_the_plan_is_frozen_at_first_use_and_drift_ends_a_resume_before_its_first_step(
    warm, small_world: Path, tmp_path: Path
) -> None:
    shown = (f"validation.passes={PASSES}", "validation.sample_count=2", "runtime.validate_every=1")
    root = tmp_path / "run"
    first = warm.train(root, *shown, "train.max_steps=1", "runtime.save_every=1")
    assert first.codes == [0], first.texts
    path = root / "validation" / "frozen-plan.json"
    written = path.read_bytes()
    plan = json.loads(written)
    assert [case["noise_seed"] for case in plan["cases"]] == [1602803860, 531831846]
    assert _planned(small_world, root)["state"] == "frozen"
    step = root / "validation" / "step_000001"
    assert json.loads((step / "COMPLETE.json").read_bytes())["cases"] == 2

    moved = tmp_path / "moved"
    shutil.copytree(small_world, moved)
    places = (f"data.index_root={moved}", f"data.transport.root={moved}")
    options = ("--resume", "latest")
    again = warm.train(root, *shown, *places, "train.max_steps=2", world_size=2, options=options)
    assert again.codes == [0, 0], again.texts
    assert path.read_bytes() == written

    drifted = warm.train(
        root, *shown, *places, "train.max_steps=3", "validation.noise_seed=7", options=options
    )
    assert drifted.codes == [3]
    assert "validation.plan-differs" in drifted.texts[0]
    assert "noise_seed" in drifted.texts[0]
    assert path.read_bytes() == written
    assert not (root / "validation" / "step_000003").exists()


def test_the_command_lists_passes_and_clips_with_their_seeds(
    small_world: Path, tmp_path: Path
) -> None:
    lines = list(_lines(_planned(small_world, tmp_path / "run")))
    assert lines[0].endswith("not frozen")
    shown = [line.split() for line in lines]
    assert ["live", "live", "bidirectional", "euler", "1", "9"] in shown
    assert ["0", "local/room-1-test-000000", "0", "33", "1602803860"] in [row[:5] for row in shown]


def test_a_training_on_latents_plans_the_raw_clips_of_its_test_index(
    small_world: Path, tmp_path: Path
) -> None:
    config = tmp_path / "twin.yaml"
    config.write_text(twin(find("wan22_ti2v_5b/train_stage0p5_fm_153f").path))
    sets = (
        f"data.index_root={small_world}",
        f"data.transport.root={small_world}",
        "data.test_index=test-index.jsonl.gz",
        "validation.sample_count=1",
        f"runtime.output_dir={tmp_path / 'run'}",
    )
    resolved = resolve(config, sets)
    assert resolved.canonical["data"]["encoding"] == "preencoded"
    plan = frozen_plan.planned(resolved, working_directory=tmp_path)
    assert [case["sample_id"] for case in plan["cases"]] == ["local/room-1-test-000000"]


@pytest.mark.parametrize(
    ("sets", "field"),
    [
        (("validation.selection_seed=3",), "selection_seed"),
        (("validation.sample_count=1",), "sample_count"),
        (("data.height=96",), "geometry.height"),
        (("data.test_index=train-index.jsonl.gz",), "index_digest"),
        ((f"validation.passes={PASSES.replace('1', '2')}",), "passes[0].num_inference_steps"),
    ],
)
def test_drift_is_refused_by_the_first_field_that_differs(
    small_world: Path, tmp_path: Path, sets: tuple[str, ...], field: str
) -> None:
    run = tmp_path / "run"
    plan = _planned(small_world, run)
    assert plan["state"] == "not frozen"
    assert not run.exists()
    path = run / "validation" / "frozen-plan.json"
    path.parent.mkdir(parents=True)
    del plan["state"]
    path.write_text(json.dumps(plan))
    for world_size in (1, 2):
        here = _planned(small_world, run, f"distributed.world_size={world_size}")
        assert here["state"] == "frozen"
        assert here["plan_key"] == plan["plan_key"]
    with pytest.raises(SolarError) as caught:
        _planned(small_world, run, *sets)
    assert (caught.value.code, caught.value.exit_code) == ("validation.plan-differs", 3)
    assert caught.value.context["field"] == field


@pytest.mark.parametrize("damage", ["edited", "text", "list", "bytes", "folder"])
def test_a_plan_that_is_not_what_was_written_is_told_as_damaged(
    small_world: Path, tmp_path: Path, damage: str
) -> None:
    run = tmp_path / "run"
    plan = _planned(small_world, run)
    del plan["state"]
    path = run / "validation" / "frozen-plan.json"
    path.parent.mkdir(parents=True)
    if damage == "folder":
        path.mkdir()
    else:
        edited = json.dumps({**plan, "case_count": 3}).encode()
        others = {"text": b"{", "list": b"[]", "bytes": b"\xff\xfe\x00"}
        path.write_bytes(others.get(damage, edited))
    with pytest.raises(SolarError) as caught:
        _planned(small_world, run)
    assert (caught.value.code, caught.value.exit_code) == ("validation.plan-damaged", 3)
