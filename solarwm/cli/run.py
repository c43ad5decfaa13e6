"""`solarwm run`: what run directories say about their runs. Reads only; needs no torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit

group = typer.Typer(help="Status and history of run directories.", add_completion=False)


@group.callback()
def _group() -> None:
    """Status and history of run directories."""


@group.command("list", epilog="Example: solarwm run list outputs")
def list_runs(
    directory: Annotated[Path, typer.Argument(help="Where to look, three levels deep.")] = Path(),
    json: JsonOption = False,
) -> None:
    """The runs below a directory, with state, last step and exit code."""
    from solarwm.runs.status import find_runs, read_status

    runs = [read_status(root).plain() for root in find_runs(directory)]
    emit({"schema": "solarwm.run-list.v1", "runs": runs}, json=json, text=_list_lines)


@group.command(epilog="Example: solarwm run status outputs/my-run --json")
def status(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: JsonOption = False,
) -> None:
    """Whether a run is running, died, or ended, how, and where each rank was last."""
    from solarwm.runs.status import read_status

    emit(read_status(run).plain(), json=json, text=_status_lines)


def _list_lines(listing: dict[str, Any]) -> Iterator[str]:
    rows = [
        (run["run"], run["state"], _text(run["step"]), _text(run["exit_code"]), _text(run["name"]))
        for run in listing["runs"]
    ]
    if not rows:
        yield "no runs here"
        return
    yield from columns(rows, header=("RUN", "STATE", "STEP", "EXIT", "NAME"))


def _status_lines(run: dict[str, Any]) -> Iterator[str]:
    yield f"{run['run']}: {run['state']}"
    yield f"  route  {_text(run['route'])}"
    total = f" of {run['max_steps']}" if run["max_steps"] else ""
    yield f"  step   {_text(run['step'])}{total}"
    if run["figures"]:
        yield "  " + "  ".join(f"{name} {value:.4g}" for name, value in run["figures"].items())
    if run["last_time"] is not None:
        then = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(run["last_time"]))
        yield f"  last   {then}"
    if run["exit_code"] is not None:
        yield f"  exit   {run['exit_code']}  {_text(run['message'], '')}".rstrip()
    result = run["result"] or {}
    if "first_failing_rank" in result:
        yield f"  first failing rank  {result['first_failing_rank']}, phase {result.get('phase')}"
    if "stopped_rank" in result:
        yield f"  stopped by a signal, first seen by rank {result['stopped_rank']}"
    if run["state"] == "died":
        yield "  It ended without a result (killed?). Nothing needs cleaning: --resume latest."
    for place in run["ranks"]:
        age = f"{place['age_s']:.0f} s ago" if place["age_s"] is not None else "unknown"
        yield (
            f"  rank {place['world_rank']}  step {_text(place['step'])}"
            f"  phase {_text(place['phase'])}  {age}"
        )


def _text(value: object, missing: str = "-") -> str:
    return missing if value is None else str(value)
