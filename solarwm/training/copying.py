"""Copies of complete checkpoints to an object store, made beside training by one rank."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from solarwm.checkpoints.object_root import ObjectRoot
from solarwm.errors.types import SolarError


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One copy that ended: `address` is empty when retention took the checkpoint first."""

    step: int
    address: str
    seconds: float


class CheckpointCopies:
    """Copies checkpoints to `address` one after another, in the order of saving.

    A copy that failed is raised by the next `poll` or `finish`; the local checkpoint stays.
    """

    def __init__(self, address: str, *, keep_last: int, keep_every: int) -> None:
        self._address = address
        self._retention = {"keep_last": keep_last, "keep_every": keep_every}
        self._root: ObjectRoot | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-copy")
        self._pending: list[Future[Copied]] = []

    def start(self, step: int, path: Path) -> None:
        """Begin the copy of a complete checkpoint."""
        self._pending.append(self._worker.submit(self._copy, step, path))

    def poll(self) -> list[Copied]:
        """The copies that have ended since. Raises what one failed with."""
        ended = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        return [future.result() for future in ended]

    def finish(self) -> list[Copied]:
        """The same once all have ended."""
        ended, self._pending = self._pending, []
        return [future.result() for future in ended]

    def _copy(self, step: int, path: Path) -> Copied:
        started = time.perf_counter()
        self._root = self._root or ObjectRoot(self._address)
        try:
            address = self._root.push(path)
        except SolarError:
            if path.exists():
                raise
            address = ""
        else:
            self._root.prune(**self._retention)
        return Copied(step=step, address=address, seconds=time.perf_counter() - started)
