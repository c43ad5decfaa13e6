"""`solarwm launch`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.cli.run_options import ConfigOption, SetOption
from solarwm.errors.types import SolarError


class Target(StrEnum):
    """Where to start."""

    LOCAL = "local"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class JobKind(StrEnum):
    """Kinds of Kubernetes jobs."""

    PYTORCHJOB = "pytorchjob"
    JOBSET = "jobset"


def launch(
    config: ConfigOption,
    set_: SetOption = None,
    target: Annotated[Target, typer.Option("--target", help="Where to start.")] = Target.LOCAL,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Machines.", min=1)] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", help="Devices, and processes, a machine.", min=1)
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address of the first machine.")
    ] = "FIRST_NODE",
    port: Annotated[int, typer.Option("--port", help="Port the machines meet at.")] = 29500,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Passed on to train: latest or a checkpoint.")
    ] = None,
    hours: Annotated[int, typer.Option("--hours", help="Time limit of a SLURM job.", min=1)] = 24,
    partition: Annotated[str | None, typer.Option("--partition", help="Of SLURM.")] = None,
    image: Annotated[
        str, typer.Option("--image", help="Container image of a Kubernetes job.")
    ] = "IMAGE_WITH_SOLARWM",
    kind: Annotated[JobKind, typer.Option("--kind", help="Kubernetes job.")] = JobKind.PYTORCHJOB,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show everything, start nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start the local target.")] = False,
    json: JsonOption = False,
) -> None:
    """How to start a config: torchrun commands for every node, a SLURM script or a Kubernetes manifest,
    with what the run needs and what it will write.

    Nothing is started without --yes, and that starts the local target only, on one machine.
    """
    from solarwm.dry_run import planned_files
    from solarwm.runs import launching
    from solarwm.runs.session import run_directory

    resolved = _any_action(config, set_)
    action = resolved.config.action
    arguments = [action, "--config", str(config)]
    arguments += [word for item in set_ or () for word in ("--set", item)]
    if resume is not None:
        if action != "train":
            raise SolarError("cli.usage", "--resume goes with a training config")
        arguments += ["--resume", resume]
    plan = launching.plan_launch(resolved, arguments, nodes=nodes, gpus=gpus, host=host, port=port)
    root = run_directory(resolved.config.runtime.output_dir, Path.cwd())
    texts = {
        Target.LOCAL: lambda: None,
        Target.SLURM: lambda: launching.slurm_script(plan, hours=hours, partition=partition),
        Target.KUBERNETES: lambda: launching.kubernetes_manifest(
            plan, image=image, kind=kind.value
        ),
    }
    report = {
        "schema": "solarwm.launch.v1",
        "target": target.value,
        "route": resolved.route.key,
        "resolved_digest": resolved.resolved_digest,
        "nodes": plan.nodes,
        "processes_per_node": plan.processes_per_node,
        "commands": plan.lines(),
        "text": texts[target](),
        "assets": launching.asset_rows(resolved, root),
        "files": planned_files(resolved, action, root),
        "warnings": launching.warnings(),
    }
    if dry_run or not yes:
        emit(report, json=json, text=_lines)
        return
    if target != Target.LOCAL or plan.nodes > 1:
        raise SolarError(
            "cli.usage",
            "--yes starts a run on this machine only",
            where="solarwm launch",
            fixes=["solarwm launch ... --dry-run, and give its text to the scheduler"],
        )
    raise typer.Exit(_start(plan.command(0)))


def _any_action(config: Path, sets: list[str] | None) -> Any:
    """The resolved run, whatever its action."""
    if config == Path():
        raise SolarError(
            "cli.usage",
            "--config is missing",
            where="solarwm launch",
            fixes=["solarwm launch --config FILE --dry-run"],
        )
    from solarwm.config.resolve import resolve

    return resolve(config, sets or ())


def _start(words: list[str]) -> int:
    """Run torchrun of this environment without what another launch left; its exit code."""
    from solarwm.runs.launching import INHERITED

    environ = {name: value for name, value in os.environ.items() if name not in INHERITED}
    environ.setdefault("OMP_NUM_THREADS", "1")
    command = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    process = subprocess.Popen(command, env=environ)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # torchrun got it too, and ends its ranks


def _lines(report: dict[str, Any]) -> Iterator[str]:
    from solarwm.storage.space import format_bytes

    yield f"{report['route']}: {report['nodes']} x {report['processes_per_node']} processes"
    for warning in report["warnings"]:
        yield f"  warning: {warning}"
    rows = []
    for item in report["assets"]:
        size = item["bytes"] if item["bytes"] is not None else item["free_bytes"]
        word = "" if size is None else format_bytes(size)
        word += " free" if item["free_bytes"] is not None else ""
        rows.append((f"  {item['state']}", item["key"], word, item["path"]))
    yield from columns(rows)
    yield from (f"  writes  {path}" for path in report["files"])
    yield ""
    if report["text"] is not None:
        yield from report["text"].splitlines()
    else:
        yield from report["commands"]
    if report["target"] == "local" and report["nodes"] == 1:
        yield "add --yes to start it here"
