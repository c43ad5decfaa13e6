"""How commands print: JSON for programs, tables and lines for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, also on a terminal.")]
"""The option every command takes."""


def wants_json(flag: bool) -> bool:
    """True when JSON is asked for, or when nobody sits in front of the output."""
    return flag or not sys.stdout.isatty()


def print_json(value: Any) -> None:
    """`value` as JSON for people: two spaces, sorted keys, UTF-8, one newline."""
    from solarwm.storage.digests import human_json

    sys.stdout.write(human_json(value).decode())


def emit(value: Any, *, json: bool, text: Callable[[Any], Iterable[str]]) -> None:
    """`value` as JSON when `json` or when stdout is no terminal, else the lines `text` makes of it."""
    if wants_json(json):
        print_json(value)
        return
    for line in text(value):
        sys.stdout.write(line + "\n")


def columns(rows: Sequence[Sequence[str]], *, header: Sequence[str] = ()) -> list[str]:
    """Rows as aligned lines of text."""
    table = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    if not table:
        return []
    widths = [max(len(row[index]) for row in table) for index in range(len(table[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    if header:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def note(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(text + "\n")
