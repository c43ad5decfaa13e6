"""Who may write into a run directory: one launch at a time, and never into another run's directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from solarwm.errors.types import SolarError
from solarwm.runs.heartbeat import read_heartbeat
from solarwm.runs.layout import RunLayout
from solarwm.storage.durable import make_directories, storage_errors
from solarwm.storage.locks import LOCK_NAME, DirectoryLock, is_locked

WAIT_S = 300.0
RESTART_S = 35.0
"""torchrun kills a rank that has not left 30 s after it was asked to."""
SKEW_S = 3.0
_SIGNS = ("resolved-config.json", "launch-manifest.json", "run-result.json", "COMPLETE.json")


def holds_run(root: Path) -> str | None:
    """The name of the file by which a directory is known to hold a run, or None."""
    for name in _SIGNS:
        if (root / name).exists():
            return name
    if root.is_dir():
        return next((path.name for path in root.glob("checkpoint_model_*")), None)
    return None


def refuse_foreign(root: Path, *, resuming: bool, resume_with: str = "--resume latest") -> None:
    """Refuse (exit 2) a place that is no directory, or holds a run while this start is a new one.

    `resume_with` is the option that would go on there.
    """
    with storage_errors(root):
        is_other = root.exists() and not root.is_dir()
    if is_other:
        raise SolarError(
            "run.directory-taken",
            "the output directory is a file",
            where=str(root),
            fixes=["--set runtime.output_dir=..."],
        )
    sign = None if resuming else holds_run(root)
    if sign is None:
        return
    if is_locked(root / LOCK_NAME):
        DirectoryLock(root).acquire().release()
    raise SolarError(
        "run.directory-taken",
        "the output directory holds another run",
        where=str(root),
        why=f"found {sign}; nothing was written",
        fixes=[resume_with, "--set runtime.output_dir=..."],
        context={"found": sign},
    )


def take(layout: RunLayout, *, command: str, resuming: bool, token: str) -> DirectoryLock:
    """The lock of the run directory, made if it is not there. For rank 0.

    Raises `run.directory-taken` or `run.directory-busy` (exit 2) before anything is written, and
    `disk.*` (exit 5) where no directory can be made.
    """
    root = Path(layout.root)
    refuse_foreign(root, resuming=resuming)
    make_directories(root)
    lock = _acquire(DirectoryLock(root), {"command": command, "token": token}, token)
    try:
        refuse_foreign(root, resuming=resuming)
    except SolarError:
        lock.release()
        raise
    return lock


def _acquire(lock: DirectoryLock, holder: dict[str, object], token: str) -> DirectoryLock:
    """Take the lock; a restarted group waits for what its launcher is still ending of the one
    before."""
    deadline = time.monotonic() + RESTART_S
    while True:
        try:
            return lock.acquire(holder)
        except SolarError as busy:
            before = str(lock.holder().get("token", ""))
            if busy.code != "run.directory-busy" or not _restarts(token, before):
                raise
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _restarts(token: str, before: str) -> bool:
    """Whether `token` is of a restart of the launch `before`: the same launcher, a later count."""
    *_, run_id, count = ["", *token.split(":")]
    *_, run_id_before, count_before = ["", *before.split(":")]
    if not run_id or run_id != run_id_before or not (count + count_before).isdigit():
        return False
    return bool(count) and bool(count_before) and int(count_before) < int(count)


def wait(
    layout: RunLayout,
    *,
    token: str,
    stopped: Callable[[], int | None],
    started: float | None = None,
) -> None:
    """Return once rank 0 of this launch has the directory. Writes nothing.

    Raises `distributed.group-failed` (exit 6) after `WAIT_S`, and `run.terminated` when asked to
    stop.
    """
    started = time.time() if started is None else started
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        beat = read_heartbeat(layout, 0)
        if beat and beat.get("token") == token and float(beat.get("time", 0)) > started - SKEW_S:
            return
        if stopped():
            raise SolarError("run.terminated", "stopped before the run began")
        time.sleep(0.05)
    raise SolarError(
        "distributed.group-failed",
        "rank 0 did not open the run directory",
        where=str(layout.root),
        why=f"waited {WAIT_S:.0f} s; all ranks must see the same directory",
    )
