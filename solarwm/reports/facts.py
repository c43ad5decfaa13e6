"""What a report tells, read from run directories: the course of a training and the figures of
generations."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CAMERAS = ("source", "inverse", "mirror", "frozen", "other")
"""Camera variants in the order they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One optimizer step of the event stream; a figure the stream lacks is NaN."""

    step: int
    loss: float
    gradient_norm: float
    lr: float
    step_time_s: float
    data_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """The course of one training run."""

    root: Path
    config: Mapping[str, Any]
    launch: Mapping[str, Any]
    result: Mapping[str, Any]
    steps: tuple[StepPoint, ...]
    resumes: tuple[int, ...]
    """Steps at which the run was taken up again."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return str(self.config.get("name", self.root.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipFacts:
    """One generated clip of one pass."""

    slot: int
    sample_id: str
    prompt: str
    pass_name: str
    camera: str
    folder: Path
    artifacts: tuple[str, ...]
    psnr_truth: float | None
    static_psnr: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFacts:
    """One inference run."""

    root: Path
    config: Mapping[str, Any]
    result: Mapping[str, Any]
    complete: bool
    quality: Mapping[str, Any]
    clips: tuple[ClipFacts, ...]
    failures: tuple[Mapping[str, Any], ...]


def read_training(root: Path) -> TrainingFacts:
    """Facts of a training run directory; files that are not there leave their part empty."""
    steps: dict[int, StepPoint] = {}
    resumes: list[int] = []
    for event in _events(root / "events" / "rank-00000.jsonl"):
        kind = event.get("event")
        if kind == "optimizer_step" and isinstance(event.get("step"), int):
            steps[event["step"]] = _step_point(event)
        elif kind in ("resume", "resumed") and isinstance(event.get("step"), int):
            resumes.append(event["step"])
    return TrainingFacts(
        root=root,
        config=_json(root / "resolved-config.json"),
        launch=_json(root / "launch-manifest.json"),
        result=_json(root / "run-result.json"),
        steps=tuple(steps[step] for step in sorted(steps)),
        resumes=tuple(resumes),
    )


def read_generation(root: Path) -> GenerationFacts:
    """Facts of an inference run directory."""
    generation = root / "generation"
    clips = [
        _clip(path, pass_root.name)
        for pass_root in sorted(path for path in generation.glob("*") if path.is_dir())
        for path in sorted(pass_root.glob("slot-*/manifest.json"))
    ]
    return GenerationFacts(
        root=root,
        config=_json(root / "resolved-config.json"),
        result=_json(root / "run-result.json"),
        complete=(generation / "COMPLETE.json").is_file(),
        quality=_json(generation / "quality.json"),
        clips=tuple(clips),
        failures=tuple(_json(path) for path in sorted(generation.glob("*/errors/slot-*.json"))),
    )


def combine(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One quality summary from several noise seeds: the mean of every number, leaf by leaf.

    Clip counts stay those of one seed; texts are taken from the first summary.
    """
    summaries = [summary for summary in summaries if summary]
    return _mean_tree(summaries) if summaries else {}


def passes_of(quality: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Names and entries of a summary's passes: the right camera first, then the wrong ones."""
    entries = dict(quality.get("passes", {})).items()
    return sorted(entries, key=lambda item: (_place(item[1]["camera"]), item[0]))


def spread(
    summaries: Sequence[Mapping[str, Any]], path: Sequence[str]
) -> tuple[float, float] | None:
    """Smallest and largest value over seeds of the number at `path`."""
    values = [value for summary in summaries if (value := lookup(summary, path)) is not None]
    return (min(values), max(values)) if values else None


def lookup(table: Mapping[str, Any], path: Sequence[str]) -> float | None:
    """The number at a path of keys, or None."""
    node: Any = table
    for key in path:
        if not isinstance(node, Mapping) or key not in node:
            return None
        node = node[key]
    return float(node) if isinstance(node, (int, float)) and not isinstance(node, bool) else None


def _place(camera: object) -> int:
    return CAMERAS.index(str(camera)) if camera in CAMERAS else len(CAMERAS)


def _mean_tree(nodes: Sequence[Any]) -> Any:
    first = nodes[0]
    if isinstance(first, Mapping):
        return {
            key: _mean_tree(
                [node[key] for node in nodes if isinstance(node, Mapping) and key in node]
            )
            for key in first
        }
    return math.fsum(nodes) / len(nodes) if isinstance(first, float) else first


def _clip(path: Path, pass_name: str) -> ClipFacts:
    manifest = _json(path)
    case, metrics = manifest["case"], manifest["metrics"]
    return ClipFacts(
        slot=case["slot"],
        sample_id=case["sample_id"],
        prompt=case["prompt"],
        pass_name=pass_name,
        camera=metrics.get("camera", "source"),
        folder=path.parent,
        artifacts=tuple(Path(artifact["path"]).name for artifact in manifest["artifacts"]),
        psnr_truth=lookup(metrics, ("psnr_truth",)),
        static_psnr=lookup(metrics, ("baselines", "static", "truth")),
    )


def _step_point(event: Mapping[str, Any]) -> StepPoint:
    losses = event.get("losses")
    loss = (
        losses.get("mean", next(iter(losses.values()), None))
        if isinstance(losses, Mapping)
        else None
    )
    return StepPoint(
        step=event["step"],
        loss=_number(loss if loss is not None else event.get("loss")),
        gradient_norm=_number(event.get("gradient_norm")),
        lr=_number(event.get("lr")),
        step_time_s=_number(event.get("step_time_s")),
        data_wait_s=_number(event.get("data_wait_s")),
    )


def _number(value: Any) -> float:
    if isinstance(value, Mapping):
        value = next(iter(value.values()), None)
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else math.nan
    )


def _events(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
