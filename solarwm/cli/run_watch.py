"""`solarwm run watch` and `solarwm run stop`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, emit
from solarwm.errors.types import SolarError

OVER = ("complete", "failed", "interrupted", "died")
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]


def watch(
    run: RunArgument,
    interval: Annotated[
        float, typer.Option("--interval", help="Seconds between looks.", min=0.1)
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    json: JsonOption = False,
) -> None:
    """A live view of a run over its files: steps, loss, times, ranks, checkpoints, disk.

    It needs no service and works over ssh; Ctrl-C ends the view, not the run. When the run ends, so does
    the view, with the run's exit code (3 for one that died without a result). Without a terminal it
    prints a line whenever a step is made.
    """
    view = _Screen() if sys.stdout.isatty() and not json else _Lines(json=json)
    with view:
        while True:
            seen = look(run)
            view.show(seen)
            if once or seen["state"] in OVER:
                break
            time.sleep(interval)
    if not once and seen["state"] != "complete":
        raise typer.Exit(seen["exit_code"] if isinstance(seen["exit_code"], int) else 3)


def look(run: Path) -> dict[str, Any]:
    """Status and outlook of a run now."""
    from solarwm.runs.outlook import outlook
    from solarwm.runs.status import read_status

    status = read_status(run).plain()
    ahead = outlook(run, step=status["step"], max_steps=status["max_steps"])
    return {**status, "schema": "solarwm.run-watch.v1", "outlook": ahead}


def stop(
    run: RunArgument,
    wait: Annotated[
        float, typer.Option("--wait", help="Seconds the run may take to end.", min=0)
    ] = 120.0,
    kill: Annotated[
        bool, typer.Option("--kill", help="End by force what is left after the wait.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Ask a run to end: its ranks on this machine get SIGTERM, finish their step and save.

    Only processes of that run are touched, known by process id, start time and command. Ranks on other
    machines are named; run the same command there.
    """
    from solarwm.runs.stopping import rank_processes
    from solarwm.runs.stopping import stop as end

    ranks = rank_processes(run)
    alive = [rank for rank in ranks if rank.process is not None]
    told = ", ".join(f"rank {r.world_rank} (process {r.identity.pid})" for r in alive if r.identity)
    if alive and not yes:
        if not sys.stdin.isatty():
            raise SolarError(
                "cli.usage",
                f"this would end {told}",
                where="solarwm run stop",
                fixes=[f"solarwm run stop {run} --yes"],
            )
        typer.confirm(f"End {told}?", abort=True)
    left = end(ranks, wait_s=wait, kill=kill)
    report = {
        "schema": "solarwm.run-stop.v1",
        "run": str(run),
        "asked": [rank.plain() for rank in alive],
        "left": [rank.world_rank for rank in left],
        "elsewhere": [r.plain() for r in ranks if r.process is None and _elsewhere(r.host)],
    }
    emit(report, json=json, text=_stop_lines)
    if left:
        raise SolarError(
            "run.still-running",
            f"{len(left)} ranks are still there after {wait:g} s",
            where=str(run),
            why=", ".join(f"rank {rank.world_rank}" for rank in left),
            fixes=[f"solarwm run stop {run} --yes --kill"],
        )


def _elsewhere(host: str) -> bool:
    import socket

    return host != socket.gethostname()


def _stop_lines(report: dict[str, Any]) -> list[str]:
    lines = [
        f"rank {r['world_rank']}: process {r['pid']} was asked to end" for r in report["asked"]
    ]
    lines += [
        f"rank {r['world_rank']} is on {r['host']}: stop it there" for r in report["elsewhere"]
    ]
    return lines or ["nothing of this run is running on this machine"]


class _Lines:
    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._last: object = None

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, seen: dict[str, Any]) -> None:
        mark = (seen["state"], seen["step"], seen["outlook"]["checkpoints"])
        if mark == self._last:
            return
        self._last = mark
        if self._json:
            import orjson

            sys.stdout.write(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS).decode() + "\n")
        else:
            sys.stdout.write("  ".join(_facts(seen)) + "\n")
        sys.stdout.flush()


class _Screen:
    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(auto_refresh=False, screen=False)

    def __enter__(self) -> _Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        self._live.__exit__(*given)

    def show(self, seen: dict[str, Any]) -> None:
        from rich.console import Group
        from rich.table import Table

        ranks = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("rank", "step", "phase", "last heard", "host"):
            ranks.add_column(name)
        for rank in seen["ranks"]:
            age = f"{rank['age_s']:.0f} s ago" if rank["age_s"] is not None else "-"
            row = (rank["world_rank"], rank["step"], rank["phase"], age, rank["host"])
            ranks.add_row(*("-" if value is None else str(value) for value in row))
        facts = [*_facts(seen), *_figures(seen)]
        self._live.update(Group(seen["run"], *(f"  {fact}" for fact in facts), ranks), refresh=True)


def _facts(seen: dict[str, Any]) -> list[str]:
    from solarwm.storage.space import format_bytes

    ahead = seen["outlook"]
    total = f"/{seen['max_steps']}" if seen["max_steps"] else ""
    facts = [seen["state"], f"step {seen['step'] if seen['step'] is not None else '-'}{total}"]
    if "loss" in seen["figures"]:
        facts.append(f"loss {seen['figures']['loss']:.4f}")
    if ahead["step_time_s"] is not None:
        facts.append(f"{ahead['step_time_s']:.2f} s a step")
    if ahead["seconds_left"] is not None and seen["state"] == "running":
        facts.append(f"{_span(ahead['seconds_left'])} left")
    facts.append(f"{ahead['checkpoints']} checkpoints")
    if ahead["next_checkpoint_fits"] is False:
        facts.append(f"NO ROOM for the next one: {format_bytes(ahead['disk_free_bytes'])} free")
    return facts


def _figures(seen: dict[str, Any]) -> list[str]:
    from solarwm.storage.space import format_bytes

    ahead = seen["outlook"]
    facts = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in seen["figures"].items()]
    facts.append(f"{ahead['validations']} validations")
    facts.append(f"{format_bytes(ahead['disk_free_bytes'])} of disk free")
    if ahead["checkpoint_bytes"]:
        facts.append(f"a checkpoint takes {format_bytes(ahead['checkpoint_bytes'])}")
    if ahead["memory_bytes"]:
        facts.append(f"{format_bytes(ahead['memory_bytes'])} of memory")
    if seen["message"]:
        facts.append(seen["message"])
    return facts


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
