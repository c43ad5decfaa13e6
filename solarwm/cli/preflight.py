"""`solarwm preflight`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.cli.run_options import ConfigOption, SetOption, open_run
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.runs.gates import Gate


def preflight(
    config: ConfigOption,
    set_: SetOption = None,
    steps: Annotated[int, typer.Option("--steps", help="Steps of the small run.", min=1)] = 2,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the small run goes.  [default: beside the run]"),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds each part may take.", min=1)
    ] = 1800.0,
    assets_only: Annotated[
        bool, typer.Option("--assets-only", help="Look at files and room only; run nothing.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the small run when all is well.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run the real path of a training config for a few steps here, gate by gate: config, assets, ranks,
    samples, forward, backward, optimizer, average, checkpoint and its reload, validation.

    It stops at the first gate that does not hold, names it and says how to try that again. Exit code 0, or
    that of the run that failed (3 for assets).
    """
    from solarwm.runs.gates import GATES, Gate, Trial, gates
    from solarwm.runs.launching import asset_rows
    from solarwm.runs.session import run_directory

    resolved = open_run(config, set_, command="train")
    root = run_directory(resolved.config.runtime.output_dir, Path.cwd())
    assets = asset_rows(resolved, root)
    bad = [row for row in assets if row["state"] != "present"]
    told = ", ".join(f"{row['key']} {row['state']}" for row in bad) or f"{len(assets)} present"
    passed = [
        Gate(name="config", passed=True, told=resolved.route.key),
        Gate(name="assets", passed=not bad, told=told),
    ]
    report: dict[str, Any] = {
        "schema": "solarwm.preflight.v1",
        "route": resolved.route.key,
        "resolved_digest": resolved.resolved_digest,
        "assets": assets,
    }
    if assets_only or bad:
        _finish(report, passed, GATES, json=json, code=3 if bad else 0)
        return
    passed.append(_environment())
    trial_root = (out or root.with_name(f"{root.name}-preflight")).absolute()
    if trial_root.exists() and any(trial_root.iterdir()):
        raise SolarError(
            "cli.file-exists",
            "the folder of the small run is not empty",
            where=str(trial_root),
            fixes=["--out NEW_DIRECTORY"],
        )
    validates = getattr(resolved.config, "validate_every", 0) > 0
    trial = Trial(
        root=trial_root,
        world_size=resolved.topology.world_size,
        steps=steps + 1,
        has_average=bool(resolved.config.ema.enabled),  # type: ignore[attr-defined]
        has_validation=validates,
    )
    sets = [*(set_ or ()), f"runtime.output_dir={trial_root}"]
    if validates and hasattr(resolved.config.runtime, "validate_every"):
        sets.append(f"runtime.validate_every={steps}")
    words = ["train", "--config", str(config), *(w for item in sets for w in ("--set", item))]
    code = 0
    parts = (["--stop-after", str(steps)], ["--resume", "latest", "--stop-after", str(steps + 1)])
    for part in parts if passed[-1].passed else ():
        command = [*_launcher(trial.world_size), *words, *part]
        code = _run(command, timeout)
        if code:
            report["again"] = shlex.join(command)
            break
    found = list(gates(trial)) if passed[-1].passed else []
    if code and all(gate.passed for gate in found):
        found.append(Gate(name="small run", passed=False, told=f"it ended with code {code}"))
    passed += found
    if not all(gate.passed for gate in passed):
        code = _run_code(trial_root) or code or 3
        report["diagnosis"] = _diagnosis(trial_root)
        report.setdefault("again", shlex.join([*_launcher(trial.world_size), *words]))
    elif not keep:
        shutil.rmtree(trial_root, ignore_errors=True)
    report["run"] = str(trial_root)
    _finish(report, passed, GATES, json=json, code=code)


def _environment() -> Gate:
    from importlib.util import find_spec

    from solarwm.runs.gates import Gate

    lacking = [name for name in ("torch", "diffusers", "av", "safetensors") if not find_spec(name)]
    told = f"not installed: {', '.join(lacking)}" if lacking else f"Python {sys.version.split()[0]}"
    return Gate(name="environment", passed=not lacking, told=told)


def _launcher(world_size: int) -> list[str]:
    if world_size == 1:
        return [sys.executable, "-m", "solarwm"]
    head = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*head, f"--nproc-per-node={world_size}", "-m", "solarwm"]


def _run(command: list[str], timeout_s: float) -> int:
    """The exit code of a part of the small run; its output goes to stderr."""
    from solarwm.runs.launching import INHERITED

    environ = {name: value for name, value in os.environ.items() if name not in INHERITED}
    environ.setdefault("OMP_NUM_THREADS", "1")
    process = subprocess.Popen(command, env=environ, stdout=sys.stderr.fileno())
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(60.0)
        except subprocess.TimeoutExpired:
            process.kill()
        raise SolarError(
            "preflight.timeout",
            f"the small run did not end within {timeout_s:g} s",
            where="solarwm preflight",
            fixes=[f"--timeout {2 * timeout_s:g}", "solarwm run diagnose RUN"],
        ) from None


def _run_code(root: Path) -> int | None:
    from solarwm.runs.layout import RunLayout
    from solarwm.runs.result import read_result

    code = (read_result(RunLayout(root)) or {}).get("exit_code")
    return code if isinstance(code, int) and code else None


def _diagnosis(root: Path) -> dict[str, Any] | None:
    from dataclasses import asdict

    from solarwm.runs.diagnosis import diagnose

    try:
        return asdict(diagnose(root))
    except SolarError:
        return None


def _finish(
    report: dict[str, Any], passed: list[Gate], names: tuple[str, ...], *, json: bool, code: int
) -> None:
    from dataclasses import asdict

    failed = next((gate.name for gate in passed if not gate.passed), None)
    reached = {gate.name for gate in passed}
    report |= {
        "ok": failed is None,
        "failed_gate": failed,
        "gates": [asdict(gate) for gate in passed],
        "not_reached": [name for name in names if name not in reached] if failed else [],
        "exit_code": code,
    }
    emit(report, json=json, text=_lines)
    if code:
        raise typer.Exit(code)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    rows = [("ok" if g["passed"] else "FAILED", g["name"], g["told"]) for g in report["gates"]]
    yield from columns(rows)
    if report["failed_gate"]:
        found = report.get("diagnosis")
        if found:
            yield f"{found['verdict']}: {found['cause']}"
            yield from (f"  fix  {text}" for text in found["fixes"])
        if report.get("again"):
            yield f"try again: {report['again']}"
    else:
        yield "ready to start"
