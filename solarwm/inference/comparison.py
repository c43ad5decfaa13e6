"""Two generations of the same cases, measured against each other and the truth. Numpy and PyAV only.

Shapes: N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solarwm.errors.types import SolarError
from solarwm.inference.quality import psnr
from solarwm.inference.video import read_mp4, side_by_side, write_mp4

FREE = ("solver", "num_inference_steps", "shift", "weights", "numerics", "mode")
"""Settings of a pass that `allow` may name; camera and length never differ."""
_WINDOW = 8
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two generations."""

    root: Path
    """The `generation` folder."""
    plan: Mapping[str, Any]

    def manifest(self, pass_name: str, slot: int) -> dict[str, Any] | None:
        """The manifest of a clip; None when it is missing."""
        path = self.root / pass_name / f"slot-{slot:06d}" / "manifest.json"
        return json.loads(path.read_bytes()) if path.is_file() else None

    def frames(self, pass_name: str, slot: int) -> np.ndarray:
        """The generated frames uint8 [N,Y,X,3]."""
        return read_mp4(self.root / pass_name / f"slot-{slot:06d}" / "video.mp4")

    def truth(self, pass_name: str, slot: int) -> np.ndarray | None:
        """The true frames, from the left half of the clip's comparison; None without one."""
        path = self.root / pass_name / f"slot-{slot:06d}" / "compare.mp4"
        if not path.is_file():
            return None
        pair = read_mp4(path)
        return pair[:, :, : pair.shape[2] // 2]


def open_side(root: Path) -> Side:
    """The generation of an inference run, or of one validation step of a training run.

    Raises SolarError `compare.nothing` (exit 3) when there is none.
    """
    for place in (root / "generation", root):
        path = place / "plan.json"
        if path.is_file():
            return Side(root=place, plan=json.loads(path.read_bytes()))
    raise SolarError(
        "compare.nothing",
        "there is no generation here",
        where=str(root),
        fixes=["give a run directory of solarwm infer, or RUN/validation/step_NNNNNN"],
    )


def require_alike(one: Side, two: Side, allow: Sequence[str] = ()) -> tuple[str, ...]:
    """The passes both have, once their plans describe the same cases made the same way.

    Settings named in `allow` may differ. Raises SolarError `compare.unlike` (exit 3) naming the first
    field that differs, with both values.
    """
    _same("family", one.plan, two.plan)
    cases = {"one": one.plan["cases"], "two": two.plan["cases"]}
    if len(cases["one"]) != len(cases["two"]):
        raise _unlike("cases", len(cases["one"]), len(cases["two"]))
    for mine, theirs in zip(cases["one"], cases["two"], strict=True):
        for name in (
            "slot",
            "sample_id",
            "start_frame",
            "noise_seed",
            "camera_fingerprint",
            "prompt",
        ):
            if mine.get(name) != theirs.get(name):
                where = f"cases[{mine.get('slot')}].{name}"
                raise _unlike(where, mine.get(name), theirs.get(name))
    left = {item["name"]: item for item in one.plan["passes"]}
    right = {item["name"]: item for item in two.plan["passes"]}
    shared = tuple(name for name in left if name in right)
    if not shared:
        raise _unlike("passes", ", ".join(left), ", ".join(right))
    for name in shared:
        for field in sorted(set(left[name]) | set(right[name])):
            mine, theirs = left[name].get(field), right[name].get(field)
            if mine != theirs and field not in allow:
                raise _unlike(f"passes.{name}.{field}", mine, theirs, field=field)
    return shared


def compare(
    one: Side,
    two: Side,
    passes: Sequence[str],
    *,
    videos: Path | None = None,
    fps: float = 16.0,
    on_case: Callable[[dict[str, Any]], None] = lambda case: None,
) -> list[dict[str, Any]]:
    """One record a pass and case that both sides have, figures under `one`, `two` and `between`.

    With `videos` a side by side (truth where known, one, two) is written for each.
    """
    found: list[dict[str, Any]] = []
    for name in passes:
        for case in one.plan["cases"]:
            slot = case["slot"]
            manifests = (one.manifest(name, slot), two.manifest(name, slot))
            if None in manifests:
                continue
            pictures = (one.frames(name, slot), two.frames(name, slot))
            own_truth = (manifests[0] or {}).get("metrics", {}).get("camera") == "source"
            truth = one.truth(name, slot) if own_truth else None
            record: dict[str, Any] = {
                "pass": name,
                "slot": slot,
                "sample_id": case["sample_id"],
                "one": clip_figures(pictures[0], truth),
                "two": clip_figures(pictures[1], truth),
                "between": {"psnr": _shared_psnr(*pictures)},
            }
            if videos is not None:
                videos.mkdir(parents=True, exist_ok=True)
                path = videos / f"{name}-slot-{slot:06d}.mp4"
                pair = side_by_side(*pictures)
                write_mp4(path, pair if truth is None else side_by_side(truth, pair), fps)
                record["video"] = path.name
            found.append(record)
            on_case(record)
    return found


def clip_figures(frames_NYX3: np.ndarray, truth_NYX3: np.ndarray | None) -> dict[str, float]:
    """Figures of one clip: `change`, the mean step between neighbouring frames; against the truth
    `psnr`, `ssim`, `change_ratio` (1 = as lively as the truth) and `motion_error`, the mean distance
    in pixels between its picture-wide motion and the truth's."""
    figures = {"change": _change(frames_NYX3)}
    if truth_NYX3 is None:
        return figures
    count = min(len(frames_NYX3), len(truth_NYX3))
    frames, truth = frames_NYX3[:count], truth_NYX3[:count]
    apart = global_motion(frames) - global_motion(truth)
    figures |= {
        "psnr": psnr(frames, truth),
        "ssim": ssim(frames[1:], truth[1:]),
        "change_ratio": figures["change"] / max(_change(truth), 1e-9),
        "motion_error": float(np.linalg.norm(apart, axis=1).mean()) if count > 1 else 0.0,
    }
    return figures


def ssim(frames_NYX3: np.ndarray, reference_NYX3: np.ndarray) -> float:
    """Mean structural similarity of grey pictures over windows of 8 x 8 (Wang et al. 2004, uniform
    windows); 1 for equal clips."""
    values = []
    for one, two in zip(_grey(frames_NYX3), _grey(reference_NYX3), strict=True):
        mean_one, mean_two = _box(one), _box(two)
        spread_one = _box(one * one) - mean_one**2
        spread_two = _box(two * two) - mean_two**2
        shared = _box(one * two) - mean_one * mean_two
        above = (2 * mean_one * mean_two + _C1) * (2 * shared + _C2)
        below = (mean_one**2 + mean_two**2 + _C1) * (spread_one + spread_two + _C2)
        values.append(float((above / below).mean()))
    return math.fsum(values) / len(values)


def global_motion(frames_NYX3: np.ndarray) -> np.ndarray:
    """How the picture as a whole moves from frame to frame, in whole pixels [N-1,2] (down, right), by
    phase correlation."""
    grey = _grey(frames_NYX3)
    grey = (grey - grey.mean(axis=(1, 2), keepdims=True)) * _taper(grey.shape[1:])
    spectra = np.fft.rfft2(grey)
    cross = spectra[1:] * np.conj(spectra[:-1])
    surface = np.fft.irfft2(cross / np.maximum(np.abs(cross), 1e-9), s=grey.shape[1:])
    height, width = grey.shape[1:]
    peak = surface.reshape(len(surface), -1).argmax(axis=1)
    down, right = np.divmod(peak, width)
    down = np.where(down > height // 2, down - height, down)
    right = np.where(right > width // 2, right - width, right)
    return np.stack([down, right], axis=1).astype(np.float64)


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Per pass: mean figures of both sides over the cases, and on how many cases each has the higher
    PSNR."""
    table: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(record["pass"] for record in records):
        own = [record for record in records if record["pass"] == name]
        entry: dict[str, Any] = {"cases": len(own)}
        for side in ("one", "two", "between"):
            keys = dict.fromkeys(key for record in own for key in record[side])
            entry[side] = {
                key: math.fsum(record[side][key] for record in own) / len(own)
                for key in keys
                if all(key in record[side] for record in own)
            }
        with_truth = [record for record in own if "psnr" in record["one"]]
        for side, other in (("one", "two"), ("two", "one")):
            wins = sum(record[side]["psnr"] > record[other]["psnr"] for record in with_truth)
            entry[side]["better_cases"] = wins
        table[name] = entry
    return table


def _shared_psnr(one: np.ndarray, two: np.ndarray) -> float:
    count = min(len(one), len(two))
    return psnr(one[:count], two[:count])


def _change(frames_NYX3: np.ndarray) -> float:
    if len(frames_NYX3) < 2:
        return 0.0
    values = frames_NYX3.astype(np.float32)
    return float(np.abs(np.diff(values, axis=0)).mean())


def _grey(frames_NYX3: np.ndarray) -> np.ndarray:
    return frames_NYX3.astype(np.float64) @ np.array([0.299, 0.587, 0.114])


def _taper(size: tuple[int, ...]) -> np.ndarray:
    return np.outer(np.hanning(size[0] + 2)[1:-1], np.hanning(size[1] + 2)[1:-1])


def _box(picture_YX: np.ndarray) -> np.ndarray:
    """Means over every window of 8 x 8."""
    total = np.pad(picture_YX.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    n = _WINDOW
    area = total[n:, n:] - total[:-n, n:] - total[n:, :-n] + total[:-n, :-n]
    return area / n**2


def _same(field: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    if one.get(field) != two.get(field):
        raise _unlike(field, one.get(field), two.get(field))


def _unlike(where: str, one: object, two: object, *, field: str = "") -> SolarError:
    fixes = ["generate both with the same validation and data sections of the config"]
    if field in FREE:
        fixes.insert(0, f"--allow {field}, if the difference is what you compare")
    return SolarError(
        "compare.unlike",
        f"the two generations differ in {where}",
        where=where,
        why=f"one: {one!r}; two: {two!r}",
        fixes=fixes,
        context={"field": where},
    )
