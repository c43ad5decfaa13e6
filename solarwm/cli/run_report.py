"""`solarwm run report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solarwm.cli.output import JsonOption, emit
from solarwm.errors.types import SolarError


def report(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A .md or .html file to write it to.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """The report of a run: what it was, how it started and ended, what it left, what nobody checked.

    As text or JSON, and with --out as Markdown or one page with curves and videos. Running and failed runs
    have one too.
    """
    from solarwm.reports.completion import completion, html, markdown, text_lines
    from solarwm.storage.durable import make_directories, write_bytes_atomic

    if out is not None and out.suffix not in (".md", ".html"):
        raise SolarError(
            "cli.usage",
            f"--out takes a .md or a .html file, not {out.name}",
            where="solarwm run report",
            fixes=["--out report.html"],
        )
    told = completion(run)
    if out is not None:
        text = markdown(told) if out.suffix == ".md" else html(told, run, out.absolute().parent)
        make_directories(out.absolute().parent)
        write_bytes_atomic(out.absolute(), text.encode())
    emit(told, json=json, text=text_lines)
