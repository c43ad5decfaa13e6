"""`solarwm train`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from solarwm.cli.run_options import ConfigOption, DryRunOption, SetFileOption, SetOption


def train(
    config: ConfigOption,
    sets: SetOption = None,
    set_files: SetFileOption = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="latest|PATH", help="Go on from a checkpoint."),
    ] = None,
    allow_fresh: Annotated[
        bool,
        typer.Option("--allow-fresh", help="With --resume: start anew if there is none."),
    ] = False,
    stop_after: Annotated[
        int | None,
        typer.Option(
            "--stop-after",
            metavar="N",
            min=1,
            help="Save and end after step N, counted from the start of training.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the run's result as JSON on standard output.")
    ] = False,
) -> int:
    """Train the route a config names. For several processes start it with torchrun."""
    from solarwm.cli.run_options import open_run, print_result, show_dry_run

    resolved = open_run(config, sets, set_files, command="train")
    if dry_run:
        return show_dry_run(
            resolved, command="train", json=json, resume=resume, allow_fresh=allow_fresh
        )
    from solarwm.trackers.choice import open_trackers
    from solarwm.training.run import train as train_run

    main_rank = os.environ.get("RANK", "0") == "0"
    view = open_trackers(resolved.config.runtime) if main_rank else None
    code = train_run(
        resolved, resume=resume, allow_fresh=allow_fresh, stop_after=stop_after, view=view
    )
    if json:
        print_result(resolved)
    return code
