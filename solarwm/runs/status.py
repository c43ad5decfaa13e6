"""What a run directory says about its run: running, died, complete, failed or interrupted."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from solarwm.errors.types import SolarError
from solarwm.runs.events import last_event
from solarwm.runs.heartbeat import age_s, read_heartbeats
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import read_launch
from solarwm.runs.result import read_result
from solarwm.storage.locks import LOCK_NAME, is_locked, read_holder

FRESH_S = 30.0
"""A heartbeat from another machine younger than this counts as a sign of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """Where one rank was when it last said something."""

    world_rank: int
    step: int | None
    phase: str | None
    age_s: float | None
    host: str | None
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The state of a run, and why it is thought to be so.

    `state`: `running` (the lock is held), `died` (no lock, no result), `complete`, `failed`,
    `interrupted`, or `new` (started nothing yet).
    """

    root: Path
    state: str
    name: str | None
    route: str | None
    step: int | None
    max_steps: int | None
    figures: dict[str, float]
    """Loss, gradient norm, rate and times of rank 0's last optimizer step; with several ranks the
    one the others waited for; how many samples were skipped, when any were."""
    exit_code: int | None
    message: str | None
    last_time: float | None
    holder: dict[str, object]
    ranks: tuple[RankStatus, ...]
    result: dict[str, Any] | None

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "schema": "solarwm.run-status.v1",
            "run": str(self.root),
            "state": self.state,
            "name": self.name,
            "route": self.route,
            "step": self.step,
            "max_steps": self.max_steps,
            "figures": self.figures,
            "exit_code": self.exit_code,
            "message": self.message,
            "last_time": self.last_time,
            "holder": self.holder,
            "ranks": [
                {name: getattr(place, name) for name in RankStatus.__slots__}
                for place in self.ranks
            ],
            "result": self.result,
        }


def is_run(root: Path) -> bool:
    """Whether a directory holds a run."""
    layout = RunLayout(root)
    return layout.launch_manifest.is_file() or layout.resolved_config.is_file()


def find_runs(root: Path, *, depth: int = 3) -> list[Path]:
    """The run directories at or below `root`, sorted; runs inside runs are not looked for."""
    if is_run(root):
        return [root]
    if depth <= 0 or not root.is_dir():
        return []
    found: list[Path] = []
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            found += find_runs(path, depth=depth - 1)
    return found


def read_status(root: Path) -> RunStatus:
    """Look at a run directory; changes nothing. Raises `run.missing` (exit 3) when it holds no
    run.
    """
    layout = RunLayout(root)
    lock_path = root / LOCK_NAME
    if not is_run(root) and not lock_path.exists():
        raise SolarError(
            "run.missing",
            "there is no run in this directory",
            where=str(root),
            fixes=["solarwm run list DIR"],
        )
    launch = read_launch(layout) or {}
    result = read_result(layout)
    beats = read_heartbeats(layout)
    holder = read_holder(lock_path)
    locked = is_locked(lock_path)
    state = _state(locked, result, holder, beats, started=is_run(root))
    ended = result if state == (result or {}).get("status") else None
    last = last_event(layout.event_stream(0)) or {}
    last_step = last_event(layout.event_stream(0), kind="optimizer_step") or {}
    steps = [step for beat in beats if (step := _int(beat.get("step"))) is not None]
    if (step := _int(last.get("step"))) is not None:
        steps.append(step)
    times = [_float(record.get("time")) for record in (*beats, last)]
    return RunStatus(
        root=root,
        state=state,
        name=launch.get("name"),
        route=launch.get("route"),
        step=_int((ended or {}).get("step")) if ended and "step" in ended else _max(steps),
        max_steps=_int(last_step.get("max_steps")),
        figures=_figures(last_step),
        exit_code=_int((ended or {}).get("exit_code")),
        message=(ended or {}).get("message") or None,
        last_time=_max(time for time in times if time is not None),
        holder=holder,
        ranks=tuple(_rank(beat) for beat in beats),
        result=ended,
    )


def _state(
    locked: bool,
    result: dict[str, Any] | None,
    holder: dict[str, object],
    beats: list[dict[str, Any]],
    *,
    started: bool,
) -> str:
    if locked:
        return "running"
    if result is not None:
        return str(result.get("status", "failed"))
    elsewhere = holder.get("host") not in {None, socket.gethostname()}
    ages = [age for beat in beats if (age := age_s(beat)) is not None]
    if elsewhere and ages and min(ages) < FRESH_S:
        return "running"
    return "died" if started else "new"


def _rank(beat: dict[str, Any]) -> RankStatus:
    return RankStatus(
        world_rank=_int(beat.get("world_rank")) or 0,
        step=_int(beat.get("step")),
        phase=beat.get("phase"),
        age_s=age_s(beat),
        host=beat.get("host"),
        pid=_int(beat.get("pid")),
    )


def _figures(event: dict[str, Any]) -> dict[str, float]:
    losses = event.get("losses")
    told = cast("dict[str, object]", losses) if isinstance(losses, dict) else {}
    found: dict[str, object] = {"loss": told.get("mean")}
    for name in ("gradient_norm", "lr", "step_time_s", "data_wait_s", "samples_per_s"):
        found[name] = event.get(name)
    for name in ("slowest_rank", "slowest_rank_s", "median_rank_s"):
        found[name] = event.get(name)
    for name in ("samples_skipped", "bad_samples"):
        found[name] = event.get(name) or None
    values = {name: _float(value) for name, value in found.items()}
    return {name: value for name, value in values.items() if value is not None}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _max(values: Iterable[Any]) -> Any:
    return max(values, default=None)
