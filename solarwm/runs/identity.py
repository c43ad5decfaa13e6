"""Which process a record means: process id, when it started, and its command, as the system tells them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psutil

_SAME_S = 0.05
"""Start times this far apart are one: they are kept in ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """One process of one boot of one machine."""

    pid: int
    started_s: float
    """Wall time of its start, seconds."""
    command: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"pid": self.pid, "started_s": self.started_s, "command": list(self.command)}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> ProcessIdentity | None:
        """What a record says; None where it says too little."""
        pid, started, command = (record.get(name) for name in ("pid", "started_s", "command"))
        if not isinstance(pid, int) or not isinstance(started, int | float):
            return None
        if not isinstance(command, list):
            return None
        words: list[object] = command  # type: ignore[assignment]
        return cls(pid=pid, started_s=float(started), command=tuple(map(str, words)))


@lru_cache(maxsize=4)
def own_identity(pid: int) -> ProcessIdentity:
    """This process; `pid` is its id, so that a forked child asks anew."""
    process = psutil.Process(pid)
    return ProcessIdentity(
        pid=pid, started_s=process.create_time(), command=tuple(process.cmdline())
    )


def find(identity: ProcessIdentity) -> psutil.Process | None:
    """The very process of a record, or None: gone, or another one that got its number."""
    try:
        process = psutil.Process(identity.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        started, command = process.create_time(), tuple(process.cmdline())
    except psutil.Error:
        return None
    same = abs(started - identity.started_s) < _SAME_S and command == identity.command
    return process if same and process.pid != os.getpid() else None
