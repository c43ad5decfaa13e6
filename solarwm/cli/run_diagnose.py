"""`solarwm run diagnose`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, emit


def diagnose(
    run: Annotated[Path, typer.Argument(help="A run directory.")], json: JsonOption = False
) -> None:
    """What is wrong with a run: the first boundary that failed, the evidence, how to verify it, what to do.

    Of a running run it tells silent ranks and steps that wait for data. Exit code 3 when something is wrong.
    """
    from dataclasses import asdict

    from solarwm.runs.diagnosis import diagnose as look

    found = look(run)
    report = {
        "schema": "solarwm.run-diagnosis.v1",
        "run": str(run),
        "is_fault": found.is_fault,
        **asdict(found),
    }
    emit(report, json=json, text=_lines)
    raise typer.Exit(3 if found.is_fault else 0)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield f"{report['run']}: {report['verdict'].upper()}"
    yield report["cause"]
    for title, key in (("evidence", "evidence"), ("verify", "verify"), ("fix", "fixes")):
        for number, line in enumerate(report[key]):
            yield f"  {title if not number else '':9} {line}"
