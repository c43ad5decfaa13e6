"""`solarwm preencode`."""

from __future__ import annotations

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


def preencode(
    config: ConfigOption,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Encode raw clips into a latent data set. For several processes start it with torchrun.

    The same command goes on where a killed run stopped.
    """
    resolved = open_run(config, set_, set_file, command="preencode")
    if dry_run:
        raise typer.Exit(show_dry_run(resolved, command="preencode", json=json))
    from solarwm import api

    code = api.preencode(resolved)
    if json:
        print_result(resolved)
    raise typer.Exit(code)
