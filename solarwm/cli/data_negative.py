"""`solarwm data encode-negative`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, emit
from solarwm.cli.run_options import ConfigOption, SetOption


def encode_negative(
    config: ConfigOption,
    out: Annotated[Path, typer.Option("--out", help="File to write; must not exist.")],
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="Text; default: train.negative_prompt of the config."),
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Encode a negative prompt into the file that train.anyflow_negative_embedding names."""
    from solarwm.config.resolve import resolve
    from solarwm.inference.negative_prompts import encode

    resolved = resolve(config, set_ or ())
    emit(encode(resolved, prompt=prompt, out=out), json=json, text=_lines)


def _lines(value: dict[str, Any]) -> list[str]:
    return [f"wrote {value['path']}: {value['tokens']} tokens of {value['width']} channels"]
