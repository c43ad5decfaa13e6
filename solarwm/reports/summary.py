"""The outcome of a run as a terminal table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from solarwm.reports.demands import demands
from solarwm.reports.facts import GenerationFacts, TrainingFacts, combine, passes_of
from solarwm.reports.html import BASELINE_WORDS, CAMERA_WORDS

if TYPE_CHECKING:
    from rich.table import Table


def course_table(training: TrainingFacts) -> Table:
    """Steps, loss and speed of a training."""
    from rich.table import Table

    table = Table(title=f"Training {training.name}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    steps = training.steps
    if steps:
        head, tail = steps[: max(1, len(steps) // 20)], steps[-max(1, len(steps) // 20) :]
        table.add_row("optimizer steps", f"{steps[-1].step}")
        table.add_row("loss, first and last twentieth", f"{_mean(head):.3f} -> {_mean(tail):.3f}")
        times = sorted(p.step_time_s for p in steps if math.isfinite(p.step_time_s))
        if times:
            table.add_row("median step", f"{times[len(times) // 2]:.3f} s")
    for step in training.resumes:
        table.add_row("resumed at step", str(step))
    if training.result:
        ending = f"{training.result.get('status')} ({training.result.get('exit_code')})"
        table.add_row("ended", ending)
    return table


def quality_table(generations: Sequence[GenerationFacts]) -> Table:
    """PSNR of every pass and baseline; several generations are averaged as noise seeds."""
    from rich.table import Table

    quality = combine([generation.quality for generation in generations])
    table = Table(title="PSNR, frames 1.., mean over clips", title_justify="left")
    table.add_column("picture")
    table.add_column("rendered truth", justify="right")
    table.add_column("reconstructed truth", justify="right")
    for name, entry in passes_of(quality):
        words = f"{CAMERA_WORDS.get(entry['camera'], entry['camera'])} ({name})"
        table.add_row(
            words, _decibels(entry["psnr_truth"]), _decibels(entry["psnr_reconstruction"])
        )
    for name, words in BASELINE_WORDS.items():
        if base := quality.get("baselines", {}).get(name):
            table.add_row(
                words, _decibels(base.get("truth")), _decibels(base.get("reconstruction"))
            )
    return table


def demand_table(generations: Sequence[GenerationFacts]) -> Table:
    """Every figure beside what the long profile asks of it."""
    from rich.table import Table

    quality = combine([generation.quality for generation in generations])
    table = Table(title="Camera control", title_justify="left")
    table.add_column("figure")
    table.add_column("reached", justify="right")
    table.add_column("asked", justify="right")
    for demand in demands(quality):
        if demand.value is not None:
            style = "green" if demand.met else "yellow"
            value = f"[{style}]{demand.value:+.2f} {demand.unit}[/{style}]"
            table.add_row(demand.name, value, f"{demand.least:+.1f} {demand.unit}")
    return table


def _mean(steps: Sequence[object]) -> float:
    losses = [point.loss for point in steps if math.isfinite(point.loss)]  # type: ignore[attr-defined]
    return math.fsum(losses) / len(losses) if losses else math.nan


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
