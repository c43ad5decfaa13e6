"""Options that train, infer, preencode and the config commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.inference.own_clip import OwnRequest

ConfigOption = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="YAML config, or a resolved one as JSON.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key; VALUE is YAML. Repeatable."),
]
SetFileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set-file", metavar="KEY=PATH", help="Override one key with a file's text. Repeatable."
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Do everything up to allocation, write nothing, say what would happen."
    ),
]


def open_run(
    config: Path,
    sets: Sequence[str] | None,
    set_files: Sequence[str] | None = None,
    *,
    command: str,
) -> ResolvedRun:
    """The resolved run of a command line; raises every fault of the config at once (exit 2)."""
    if config == Path():
        raise SolarError(
            "cli.usage",
            "--config is missing",
            where=f"solarwm {command}",
            fixes=[f"solarwm {command} --config FILE", "solarwm config list"],
        )
    from solarwm.config.resolve import resolve

    return resolve(config, sets or (), files=set_files or (), action=command)


def show_dry_run(
    resolved: ResolvedRun,
    *,
    command: str,
    json: bool,
    resume: str | None = None,
    allow_fresh: bool = False,
    first_row: bool = False,
    own: OwnRequest | None = None,
) -> int:
    """Print what a start with these options would do; gives the exit code it would end with."""
    from solarwm.cli.output import emit
    from solarwm.dry_run import StartOptions, dry_run

    options = StartOptions(resume=resume, allow_fresh=allow_fresh, first_row=first_row, own=own)
    report = dry_run(resolved, command=command, options=options)
    emit(report, json=json, text=_lines)
    return int(report["exit_code"])


def print_result(resolved: ResolvedRun, *, own: bool = False) -> None:
    """Print the `run-result.json` of a finished run, on rank 0."""
    import os
    import sys

    from solarwm.runs.session import run_directory

    if os.environ.get("RANK", "0") == "0":
        root = run_directory(resolved.config.runtime.output_dir, Path.cwd())
        if resolved.canonical["action"] == "infer":
            from solarwm.inference.publication import generation_root

            root = generation_root(resolved, root, own=own)
        sys.stdout.write((root / "run-result.json").read_text(encoding="utf-8"))


def _lines(report: dict[str, Any]) -> list[str]:
    topology, launcher = report["topology"], report["launcher"]
    lines = [
        f"dry run of {report['command']}: {report['route']}",
        f"  batch      {topology['equation']} samples a step",
        f"  processes  {launcher['seen']} seen, {launcher['expected']} expected",
        f"  run        {report['run_directory']}",
    ]
    if report["resumes"]:
        lines.append(f"  resumes    {report['resumes']['checkpoint']}")
    model = report["model"]
    if model.get("parameters") is not None:
        lines.append(
            f"  model      {model['parameters']:,} parameters ({model['profile']}), "
            f"optimizer {model['optimizer_bytes'] / 2**20:,.1f} MiB"
        )
    else:
        lines.append(f"  model      not built: {model['reason']}")
    for asset in report["assets"]:
        lines.append(
            f"  {'present' if asset['present'] else 'MISSING':<10} {asset['key']}: {asset['path']}"
        )
    for index in report["indexes"]:
        lines.append(
            f"  index      {index['key']}: first samples {', '.join(index['first_samples']) or '-'}"
        )
    lines += [f"  writes     {path}" for path in report["files"]]
    lines += [f"  stops      [{fault['code']}] {fault['headline']}" for fault in report["faults"]]
    return [
        *lines,
        f"a start would end with exit code {report['exit_code']}"
        if report["exit_code"]
        else "ready",
    ]
