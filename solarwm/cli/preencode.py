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
    show_dry_run,
)


def preencode(
    config: ConfigOption,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Encode raw clips into a latent data set; this release checks the config only (--dry-run)."""
    resolved = open_run(config, set_, set_file, command="preencode")
    if dry_run:
        raise typer.Exit(show_dry_run(resolved, command="preencode", json=json))
    from solarwm import api

    raise typer.Exit(api.preencode(resolved))
