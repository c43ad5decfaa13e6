"""`solarwm explain CODE`."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.errors.catalog import CATALOG
from solarwm.errors.remedies import remedy
from solarwm.errors.types import SolarError


def explain(
    code: Annotated[str, typer.Argument(help="Code in brackets at the end of an error line.")] = "",
    json: JsonOption = False,
) -> None:
    """What an error code means and how to mend it; without a code, the list of all codes."""
    if not code:
        listed = {
            name: {"exit_code": entry.exit_code, "title": entry.title}
            for name, entry in CATALOG.items()
        }
        emit(
            listed,
            json=json,
            text=lambda _: columns(
                [(name, str(entry.exit_code), entry.title) for name, entry in CATALOG.items()],
                header=("code", "exit", "title"),
            ),
        )
        return
    entry = CATALOG.get(code)
    if entry is None:
        close = difflib.get_close_matches(code, list(CATALOG), n=3, cutoff=0.5)
        raise SolarError(
            "cli.usage",
            "no such error code",
            fixes=[f"solarwm explain {name}" for name in close] or ["solarwm explain"],
        )
    value = {
        "code": code,
        "exit_code": entry.exit_code,
        "title": entry.title,
        "explanation": entry.explanation,
        "remedy": remedy(code),
    }
    emit(
        value,
        json=json,
        text=lambda _: [
            f"{code}  (exit code {entry.exit_code})",
            entry.title,
            "",
            entry.explanation,
            *(["", f"What helps: {remedy(code)}"] if remedy(code) else []),
        ],
    )
