"""Two generations of the same cases: figures with closed forms, and refusals that name the field."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solarwm.errors.types import SolarError
from solarwm.inference import comparison, figures
from solarwm.inference.video import read_mp4, side_by_side, write_mp4

PLAN = {
    "family": "wan22_ti2v_5b",
    "cases": [
        {
            "slot": slot,
            "sample_id": f"demo/{slot}",
            "start_frame": 0,
            "noise_seed": 7 + slot,
            "camera_fingerprint": "c" * 64,
            "prompt": "A room.",
        }
        for slot in range(2)
    ],
    "passes": [
        {"name": "right", "camera": "source", "latents": 3, "solver": "euler", "weights": "ema"}
    ],
}


def clip(seed: int, frames: int = 9, height: int = 32, width: int = 48) -> np.ndarray:
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 255, (height // 4, width // 4, 3))
    picture = np.kron(coarse, np.ones((4, 4, 1))).astype(np.uint8)
    return np.stack([np.roll(picture, 2 * i, axis=1) for i in range(frames)])


def noisy(frames: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, sigma, frames.shape)
    return np.clip(frames + noise, 0, 255).astype(np.uint8)


def generation(root: Path, sigma: float, plan: dict | None = None) -> Path:
    folder = root / "generation"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan or PLAN))
    for case in PLAN["cases"]:
        slot = case["slot"]
        place = folder / "right" / f"slot-{slot:06d}"
        place.mkdir(parents=True)
        truth = clip(slot)
        write_mp4(place / "video.mp4", noisy(truth, sigma), 16.0)
        write_mp4(place / "compare.mp4", side_by_side(truth, noisy(truth, sigma)), 16.0)
        metrics = {"camera": "source"}
        (place / "manifest.json").write_text(json.dumps({"metrics": metrics, "case": case}))
    return root


def test_similarity_is_one_for_equal_clips_and_falls_with_noise() -> None:
    truth = clip(0)
    assert figures.ssim(truth, truth) == pytest.approx(1.0, abs=1e-12)
    near, far = (figures.ssim(noisy(truth, sigma), truth) for sigma in (5, 40))
    assert 0 < far < near < 1


def test_similarity_of_flat_pictures_follows_its_formula() -> None:
    one = np.full((1, 16, 16, 3), 100, np.uint8)
    two = np.full((1, 16, 16, 3), 120, np.uint8)
    c1 = (0.01 * 255) ** 2
    expected = (2 * 100 * 120 + c1) / (100**2 + 120**2 + c1)
    assert figures.ssim(one, two) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("down", "right"), [(0, 3), (2, 0), (-3, 5)])
def test_motion_of_the_whole_picture_is_found_in_pixels(down: int, right: int) -> None:
    picture = clip(3, frames=1, height=64, width=96)[0]
    frames = np.stack([np.roll(picture, (down * i, right * i), axis=(0, 1)) for i in range(5)])
    assert figures.global_motion(frames).tolist() == [[down, right]] * 4


@pytest.mark.parametrize("pieces", [[21], [1, 20], [8, 8, 5], [1] * 21])
def test_figures_do_not_depend_on_the_blocks_and_follow_their_words(pieces: list[int]) -> None:
    truth = clip(1, frames=18)
    frames = np.concatenate([noisy(truth, 9.0), clip(2, frames=3)])
    running = figures.ClipFigures()
    start = 0
    for size in pieces:
        running.add(frames[start : start + size], truth[start : start + size])
        start += size
    found = running.table()
    steps = np.abs(np.diff(frames.astype(float), axis=0)).mean()
    lively = np.abs(np.diff(truth.astype(float), axis=0)).mean()
    common = frames[:18]
    apart = figures.global_motion(common) - figures.global_motion(truth)
    error = ((common[1:].astype(float) - truth[1:]) ** 2).mean()
    assert found == pytest.approx(
        {
            "change": steps,
            "change_ratio": steps / lively,
            "psnr": 10 * np.log10(255**2 / error),
            "ssim": figures.ssim(common[1:], truth[1:]),
            "motion_error": np.linalg.norm(apart, axis=1).mean(),
        },
        rel=1e-5,
    )


def test_the_nearer_generation_wins_every_figure(tmp_path: Path) -> None:
    near = comparison.open_side(generation(tmp_path / "near", 4.0))
    far = comparison.open_side(generation(tmp_path / "far", 30.0))
    passes = comparison.require_alike(near, far)
    records = comparison.compare(near, far, passes, videos=tmp_path / "videos")
    table = comparison.summary(records)["right"]
    assert table["cases"] == 2
    assert table["one"]["psnr"] > table["two"]["psnr"] + 5
    assert table["one"]["ssim"] > table["two"]["ssim"]
    assert table["one"]["change_ratio"] < table["two"]["change_ratio"]
    assert (table["one"]["better_cases"], table["two"]["better_cases"]) == (2, 0)
    shape = read_mp4(tmp_path / "videos" / "right-slot-000000.mp4").shape
    assert shape == (9, 32, 3 * 48, 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda plan: plan["cases"][1].update(noise_seed=1), "cases[1].noise_seed"),
        (lambda plan: plan["cases"].pop(), "cases"),
        (lambda plan: plan["passes"][0].update(camera="inverse"), "passes.right.camera"),
        (lambda plan: plan["passes"][0].update(solver="unipc"), "passes.right.solver"),
        (lambda plan: plan["passes"][0].update(name="other"), "passes"),
        (lambda plan: plan.update(family="x"), "family"),
    ],
)
def test_unlike_plans_are_refused_by_the_field_that_differs(change, field: str) -> None:
    other = copy.deepcopy(PLAN)
    change(other)
    one = comparison.Side(root=Path(), plan=PLAN)
    two = comparison.Side(root=Path(), plan=other)
    with pytest.raises(SolarError) as told:
        comparison.require_alike(one, two)
    assert told.value.code == "compare.unlike"
    assert told.value.context["field"] == field
    if field.endswith("solver"):
        assert comparison.require_alike(one, two, ["solver"]) == ("right",)


def test_the_command_writes_a_page_and_says_what_is_missing(tmp_path: Path) -> None:
    one, two = generation(tmp_path / "one", 4.0), generation(tmp_path / "two", 8.0)
    command = [sys.executable, "-m", "solarwm", "compare", str(one), str(two), "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passes"]["right"]["cases"] == 2
    page = (tmp_path / "out" / "index.html").read_text()
    for link in ("videos/right-slot-000000.mp4", "videos/right-slot-000001.mp4"):
        assert link in page
        assert (tmp_path / "out" / link).is_file()
    (two / "generation" / "right" / "slot-000001" / "manifest.json").unlink()
    partial = subprocess.run(command, capture_output=True, text=True)
    assert partial.returncode == 4
    assert json.loads(partial.stdout)["missing"] == 1
    nothing = subprocess.run(
        [*command[:4], str(one), str(tmp_path), "--json"], capture_output=True, text=True
    )
    assert nothing.returncode == 3
    assert json.loads(nothing.stdout)["code"] == "compare.nothing"
