"""`solarwm run`: what run directories say about their runs. Needs no torch; only `stop` changes anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.cli.run_diagnose import diagnose
from solarwm.cli.run_options import SetOption, open_run
from solarwm.cli.run_report import report
from solarwm.cli.run_watch import stop, watch

group = typer.Typer(
    help="Status and history of run directories; watching and stopping them.", add_completion=False
)


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


group.command("watch", epilog="Example: solarwm run watch outputs/my-run")(watch)
group.command("diagnose", epilog="Example: solarwm run diagnose outputs/my-run")(diagnose)
group.command("report", epilog="Example: solarwm run report outputs/my-run --out report.html")(
    report
)
group.command("stop", epilog="Example: solarwm run stop outputs/my-run --yes")(stop)


@group.command("resume-check", epilog="Example: solarwm run resume-check outputs/my-run")
def resume_check(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The config to resume with; default: the run's own."),
    ] = None,
    set_: SetOption = None,
    count: Annotated[int, typer.Option("--samples", min=0, help="Next samples to show.")] = 8,
    json: JsonOption = False,
) -> None:
    """What --resume latest would restore, what differs, and the samples that come next. No GPU, no torch.

    Exit code 3 when the resume would be refused.
    """
    from solarwm.training.resume_check import resume_check as check

    wanted = None
    if config is not None or set_:
        source = config or run / "resolved-config.json"
        wanted = open_run(source, set_, command="train").canonical
    report = check(run, config=wanted, count=count)
    emit(report, json=json, text=_resume_lines)
    raise typer.Exit(0 if report["resumable"] else 3)


def _resume_lines(report: dict[str, Any]) -> Iterator[str]:
    yield f"{report['checkpoint']}: step {report['step']} of {report['max_steps']}"
    yield f"  consumed   {report['occurrences']} samples; saved by {report['saved_by_ranks']} rank(s)"
    for item in report["restores"]:
        yield f"  restores   {item['member']}, {item['tensors']} tensors"
    for text in report["passed_over"]:
        yield f"  passes over  {text}"
    for item in report["differences"]:
        word = "refused" if item["refused"] else "differs"
        yield f"  {word}  {item['key']}: saved {item['saved']!r}, now {item['now']!r} ({item['reason']})"
    for item in report["next_samples"] or []:
        yield f"  next  {item['occurrence']}  {item['sample_id']}"
    yield "can be resumed" if report["resumable"] else "would be refused"


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
