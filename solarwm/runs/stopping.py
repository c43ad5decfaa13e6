"""Ending a run from outside: only its own processes, found by their recorded identity."""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from solarwm.errors.types import SolarError
from solarwm.runs.heartbeat import boot_id, read_heartbeats
from solarwm.runs.identity import ProcessIdentity, find
from solarwm.runs.layout import RunLayout
from solarwm.runs.status import is_run


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """A rank as its heartbeat tells it."""

    world_rank: int
    host: str
    identity: ProcessIdentity | None
    process: psutil.Process | None
    """The process on this machine, where it still is that one."""

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "world_rank": self.world_rank,
            "host": self.host,
            "pid": self.identity.pid if self.identity else None,
            "alive_here": self.process is not None,
        }


def rank_processes(root: Path) -> list[RankProcess]:
    """Every rank that ever beat, and its process where it runs on this machine since this boot.

    Raises `run.missing` (exit 3).
    """
    if not is_run(root):
        raise SolarError("run.missing", "there is no run in this directory", where=str(root))
    found: list[RankProcess] = []
    here = (socket.gethostname(), boot_id())
    for beat in read_heartbeats(RunLayout(root)):
        identity = ProcessIdentity.read(beat)
        near = (beat.get("host"), beat.get("boot_id")) == here
        found.append(
            RankProcess(
                world_rank=int(beat.get("world_rank", 0)),
                host=str(beat.get("host", "?")),
                identity=identity,
                process=find(identity) if identity is not None and near else None,
            )
        )
    return found


def stop(ranks: list[RankProcess], *, wait_s: float, kill: bool) -> list[RankProcess]:
    """Ask the ranks of this machine to end (SIGTERM: they finish their step and save), wait, and with
    `kill` end by force what is left. Gives those that are still there."""
    alive = [rank for rank in ranks if rank.process is not None]
    _send(alive, signal.SIGTERM)
    left = _wait(alive, wait_s)
    if left and kill:
        _send(left, signal.SIGKILL)
        left = _wait(left, 10.0)
    return left


def _send(ranks: list[RankProcess], number: signal.Signals) -> None:
    for rank in ranks:
        process = find(rank.identity) if rank.identity is not None else None
        if process is not None:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
            except psutil.AccessDenied as error:
                raise SolarError(
                    "run.stop-refused",
                    f"rank {rank.world_rank} belongs to another user",
                    where=f"process {process.pid}",
                    why=str(error),
                ) from None


def _wait(ranks: list[RankProcess], wait_s: float) -> list[RankProcess]:
    deadline = time.monotonic() + wait_s
    left = ranks
    while left:
        left = [rank for rank in left if rank.identity is not None and find(rank.identity)]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left
