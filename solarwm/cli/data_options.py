"""What the data commands share: the index argument and complaints about options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solarwm.errors.types import SolarError

IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="JSONL or JSONL.GZ index.")]


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse (exit 2) a value that is none of `allowed`."""
    if value not in allowed:
        raise usage(f"{option} must be one of {', '.join(allowed)}", f"it is {value!r}")


def usage(headline: str, why: str) -> SolarError:
    """A fault of the command line."""
    return SolarError("cli.usage", headline, why=why, fixes=["solarwm data --help"])
