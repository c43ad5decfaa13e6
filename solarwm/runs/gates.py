"""The gates of a preflight in order, each decided from what a small real run left. Plain files, no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solarwm.runs.layout import RunLayout
from solarwm.runs.outlook import recent_events


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One step of the path every run takes."""

    name: str
    passed: bool
    told: str
    """What was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The small run that is looked at."""

    root: Path
    world_size: int
    steps: int
    has_average: bool
    has_validation: bool


def gates(trial: Trial) -> Iterator[Gate]:
    """Every gate up to and with the first that does not hold."""
    for name, look in _LOOKS:
        seen = look(trial)
        if seen is None:
            continue
        yield Gate(name=name, passed=seen[0], told=seen[1])
        if not seen[0]:
            return


Seen = tuple[bool, str] | None
"""(held, what was seen); None where the run has no such thing."""


def _joined(trial: Trial) -> Seen:
    streams = list(RunLayout(trial.root).events.glob("rank-*.jsonl"))
    return len(streams) == trial.world_size, f"{len(streams)} of {trial.world_size} ranks began"


def _steps(trial: Trial) -> list[dict[str, Any]]:
    events = recent_events(trial.root)
    return [event for event in events if event.get("event") == "optimizer_step"]


def _read(trial: Trial) -> Seen:
    made = _steps(trial)
    samples = sum(int(event.get("samples", 0) or 0) for event in made)
    shown = f"{len(made)} steps of data" + (f", {samples} samples" if samples else "")
    return bool(made), shown


def _finite(name: str) -> Callable[[Trial], Seen]:
    def look(trial: Trial) -> Seen:
        values = [
            event["losses"]["mean"] if name == "loss" else event.get("gradient_norm")
            for event in _steps(trial)
        ]
        bad = [v for v in values if not isinstance(v, int | float) or not math.isfinite(v)]
        return bool(values) and not bad, ", ".join(f"{v:.4g}" for v in values if v not in bad)

    return look


def _optimizer(trial: Trial) -> Seen:
    made = _steps(trial)
    last = made[-1].get("step") if made else 0
    return last == trial.steps, f"step {last} of {trial.steps}"


def _average(trial: Trial) -> Seen:
    if not trial.has_average:
        return None
    updates = [event.get("ema_updates") for event in _steps(trial)]
    last = updates[-1] if updates else None
    return last is not None, f"{last} updates"


def _checkpoint(trial: Trial) -> Seen:
    whole = sorted(p.parent.name for p in trial.root.glob("checkpoint_model_*/COMPLETE.json"))
    return bool(whole), ", ".join(whole) or "no COMPLETE.json"


def _reloaded(trial: Trial) -> Seen:
    resumed = [e for e in recent_events(trial.root) if e.get("event") == "resume"]
    return bool(resumed), f"resumed at step {resumed[-1].get('step')}" if resumed else "not resumed"


def _validation(trial: Trial) -> Seen:
    if not trial.has_validation:
        return None
    plans = list(trial.root.glob("validation/frozen-plan.json"))
    return bool(plans), "frozen-plan.json" if plans else "no plan was made"


def _passes(trial: Trial) -> Seen:
    if not trial.has_validation:
        return None
    steps = sorted(trial.root.glob("validation/step_*"))
    whole = [step.name for step in steps if (step / "COMPLETE.json").exists()]
    return bool(steps) and len(whole) == len(
        steps
    ), f"{len(whole)} of {len(steps)} validations whole"


_LOOKS: tuple[tuple[str, Callable[[Trial], Seen]], ...] = (
    ("ranks joined", _joined),
    ("samples read", _read),
    ("forward finite", _finite("loss")),
    ("backward finite", _finite("gradient_norm")),
    ("optimizer stepped", _optimizer),
    ("average updated", _average),
    ("checkpoint committed", _checkpoint),
    ("checkpoint reloaded", _reloaded),
    ("validation plan made", _validation),
    ("every pass made its files", _passes),
)
GATES = ("config", "assets", "environment", *(name for name, _ in _LOOKS))
"""Names of all gates, in order."""
