"""Validation, whole or broken, changes nothing of the training around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PASSES = json.dumps(
    [
        {"name": weights, "weights": weights, "solver": "euler", "num_inference_steps": 1}
        for weights in ("live", "ema")
    ]
)
WATCHED = """
import random
from solarwm.checkpoints import rng
from solarwm.training.validating import TrainingValidation
real = TrainingValidation.run
def run(self, step):
    before = rng.capture()
    real(self, step)
    print("draws", "untouched" if rng.capture() == before else "moved")
TrainingValidation.run = run
"""
BROKEN = """
from solarwm.errors.types import SolarError
from solarwm.inference import passes
def generate(*args, **kwargs):
    import numpy, torch
    torch.rand(7), numpy.random.rand(7), random.random()
    raise SolarError("inference.video", "the decoder broke")
passes.generate = generate
"""


def _members(run: Path) -> dict[str, bytes]:
    """Every file of the last checkpoint that holds tensors."""
    checkpoint = run / "checkpoint_model_000002"
    paths = [*checkpoint.glob("student-*/*.distcp")]
    assert len(paths) == 3
    return {str(path.relative_to(checkpoint)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def alone(warm, tmp_path_factory) -> Path:
    """A run that validates nothing."""
    root = tmp_path_factory.mktemp("alone") / "run"
    ended = warm.train(root, "train.max_steps=2", "train.ema.decay=0.5")
    assert ended.codes == [0], ended.texts
    return root


@pytest.mark.parametrize("patch", ["", BROKEN], ids=["whole", "every clip fails"])
def test_weights_averages_and_optimizer_are_those_of_a_run_without_validation(
    warm, alone, tmp_path, patch
) -> None:
    ended = warm.train(
        tmp_path / "run",
        "train.max_steps=2",
        "train.ema.decay=0.5",
        "runtime.validate_every=1",
        "validation.sample_count=1",
        f"validation.passes={PASSES}",
        patch=WATCHED + patch,
    )
    assert ended.codes == [0], ended.texts
    assert ended.texts[0].count("draws untouched") == 2, ended.texts
    reports = [event["report"] for event in ended.events(kind="validation")]
    assert [report["slots_missing"] for report in reports] == [[0] if patch else []] * 2
    step = ended.root / "validation" / "step_000001"
    records = sorted(path.parts[-3] for path in step.rglob("errors/*.json"))
    assert records == (["ema", "live"] if patch else [])
    assert (step / "COMPLETE.json").exists() == (not patch)
    assert _members(ended.root) == _members(alone)
