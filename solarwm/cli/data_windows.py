"""`solarwm data materialize-wan153f`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, emit


def materialize_wan153f(
    train_index: Annotated[Path, typer.Option("--train-index", help="Raw training index.")],
    test_index: Annotated[Path, typer.Option("--test-index", help="Raw test index.")],
    train_window_index: Annotated[
        Path, typer.Option("--train-window-index", help="Released index of training windows.")
    ],
    test_window_index: Annotated[
        Path, typer.Option("--test-window-index", help="Released index of test windows.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Index to write; must not exist.")],
    json: JsonOption = False,
) -> None:
    """Cut raw rows into the released 153-frame windows: the index that preencode takes."""
    from solarwm.data.window_index import materialize

    report = materialize(
        raw={"train": train_index, "test": test_index},
        windows={"train": train_window_index, "test": test_window_index},
        output=output,
    )
    emit(report.plain(), json=json, text=_lines)


def _lines(value: dict[str, Any]) -> list[str]:
    return [
        f"{value['train_windows']} training and {value['test_windows']} test windows",
        f"wrote {value['output']}, SHA-256 {value['compressed_sha256']}",
    ]
