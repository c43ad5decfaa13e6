"""Two generations of the same cases, measured against each other and the truth. Numpy and PyAV only.

Shapes: N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from solarwm.errors.types import SolarError
from solarwm.inference.figures import BLOCK, ClipFigures, RunningPsnr
from solarwm.inference.video import VideoWriter, read_blocks

FREE = ("solver", "num_inference_steps", "shift", "weights", "numerics", "mode")
"""Settings of a pass that `allow` may name; camera and length never differ."""


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

    def frames(self, pass_name: str, slot: int) -> Iterator[np.ndarray]:
        """The generated frames uint8 [n,Y,X,3], a block at a time."""
        return read_blocks(self.root / pass_name / f"slot-{slot:06d}" / "video.mp4", BLOCK)

    def truth(self, pass_name: str, slot: int) -> Iterator[np.ndarray] | None:
        """The true frames, from the left half of the clip's comparison; None without one."""
        path = self.root / pass_name / f"slot-{slot:06d}" / "compare.mp4"
        if not path.is_file():
            return None
        return (pair[:, :, : pair.shape[2] // 2] for pair in read_blocks(path, BLOCK))


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
            own_truth = (manifests[0] or {}).get("metrics", {}).get("camera") == "source"
            truth = one.truth(name, slot) if own_truth else None
            path = None
            if videos is not None:
                videos.mkdir(parents=True, exist_ok=True)
                path = videos / f"{name}-slot-{slot:06d}.mp4"
            blocks = (one.frames(name, slot), two.frames(name, slot))
            record = {
                "pass": name,
                "slot": slot,
                "sample_id": case["sample_id"],
                **_case(*blocks, truth, path, fps),
            }
            found.append(record)
            on_case(record)
    return found


def _case(
    one: Iterator[np.ndarray],
    two: Iterator[np.ndarray],
    truth: Iterator[np.ndarray] | None,
    video: Path | None,
    fps: float,
) -> dict[str, Any]:
    """Figures of one case, block by block; writes the videos side by side, as long as the shortest."""
    figures = (ClipFigures(), ClipFigures())
    between = RunningPsnr()
    none = np.zeros((0, 0, 0, 3), np.uint8)
    with ExitStack() as files:
        writer = None if video is None else files.enter_context(VideoWriter(video, fps))
        for mine, theirs, true in zip_longest(one, two, truth or (), fillvalue=none):
            for clip, frames in zip(figures, (mine, theirs), strict=True):
                if len(frames):
                    clip.add(frames, true[: len(frames)] if len(true) else None)
            common = min(len(mine), len(theirs))
            if common:
                between.add(mine[:common], theirs[:common])
            shown = min(common, len(true)) if truth is not None else common
            if writer is not None and shown:
                sides = [true, mine, theirs] if truth is not None else [mine, theirs]
                writer.write(np.concatenate([side[:shown] for side in sides], axis=2))
    record: dict[str, Any] = {"one": figures[0].table(), "two": figures[1].table()}
    record["between"] = {"psnr": between.value()}
    return record if video is None else {**record, "video": video.name}


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
