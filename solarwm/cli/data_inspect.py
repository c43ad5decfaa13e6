"""`solarwm data inspect`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from solarwm.cli.data_options import IndexArgument
from solarwm.cli.output import JsonOption, columns, emit


def inspect(
    index: IndexArgument,
    digests: Annotated[
        bool,
        typer.Option("--digests/--no-digests", help="Without, rows are checked and counted only."),
    ] = True,
    json: JsonOption = False,
) -> None:
    """Count the rows of an index, check every one, and print its three digests."""
    from solarwm.data.digest import inspect_index

    told = asdict(inspect_index(index, digests=digests))
    report = {name: None if value == "" else value for name, value in told.items()}
    emit(
        report,
        json=json,
        text=lambda value: columns([(k, str(v)) for k, v in value.items() if v is not None]),
    )
