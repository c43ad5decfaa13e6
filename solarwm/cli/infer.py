"""`solarwm infer`."""

from __future__ import annotations

from typing import Annotated

import typer

from solarwm.cli.output import JsonOption
from solarwm.cli.run_options import (
    ConfigOption,
    DryRunOption,
    SetFileOption,
    SetOption,
    open_run,
    print_result,
    show_dry_run,
)


def infer(
    config: ConfigOption,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Fill the missing clips of the same output directory."),
    ] = False,
    first_row: Annotated[
        bool, typer.Option("--first-row", help="Generate the first selected clip only.")
    ] = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Generate held-out clips: MP4s, side-by-side comparisons, cameras, figures.

    One process, or one per rank under torchrun. Exit code 4 means that some clips are missing;
    --resume fills them.
    """
    resolved = open_run(config, set_, set_file, command="infer")
    if dry_run:
        raise typer.Exit(
            show_dry_run(
                resolved,
                command="infer",
                json=json,
                resume="latest" if resume else None,
                first_row=first_row,
            )
        )
    from solarwm.inference.run import infer as run_inference

    code = run_inference(resolved, resume=resume, first_row=first_row)
    if json:
        print_result(resolved)
    raise typer.Exit(code)
