"""`solarwm checkpoint prune`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.errors.types import SolarError


def prune(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    keep_last: Annotated[
        int, typer.Option("--keep-last", min=0, help="Newest checkpoints kept; 0 keeps all.")
    ] = 0,
    keep_every: Annotated[
        int, typer.Option("--keep-every", min=0, help="Steps whose multiples are kept for good.")
    ] = 0,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove; without it they are only listed.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Thin out the checkpoints of a run that is not running; what would go is listed until --yes.

    The newest is proven by every digest before any other is removed. Checkpoints of other runs,
    unusable ones and other names are left alone.
    """
    from solarwm.checkpoints.directory import prune as thin_out

    if not keep_last:
        raise SolarError(
            "cli.usage",
            "--keep-last says how many stay; 0 keeps all, so nothing would be removed",
            fixes=["solarwm checkpoint prune RUN --keep-last 3"],
        )
    kept, chosen = thin_out(run, keep_last=keep_last, keep_every=keep_every, dry_run=not yes)
    value = {
        "schema": "solarwm.checkpoint-prune.v1",
        "run": str(run),
        "removed": yes,
        "chosen": [{"path": str(entry.path), "step": entry.step} for entry in chosen],
        "kept": [{"path": str(entry.path), "step": entry.step} for entry in kept],
    }
    emit(value, json=json, text=_lines)


def _lines(value: dict[str, Any]) -> Iterator[str]:
    word = "removed" if value["removed"] else "would go"
    rows = [("kept", str(item["step"]), item["path"]) for item in value["kept"]]
    rows += [(word, str(item["step"]), item["path"]) for item in value["chosen"]]
    yield from columns(rows, header=("", "STEP", "PATH"))
    if value["chosen"] and not value["removed"]:
        yield "add --yes to remove them"
