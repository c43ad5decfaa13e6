"""A kernel lock on a directory that dies with the process that holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from solarwm.errors.types import SolarError
from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import storage_errors

LOCK_NAME = ".solarwm.lock"
_ATTEMPTS = 4
_RETRY_S = 0.05
_HELD: set[DirectoryLock] = set()


class DirectoryLock:
    """One writer for one directory, by `flock` on a file in it.

    The kernel drops the lock when the holder ends, however it ends. A forked child does not keep it
    alive. The file says who holds it, for people; only the kernel lock counts.
    """

    def __init__(self, directory: Path, *, name: str = LOCK_NAME) -> None:
        self.directory = Path(directory)
        self.path = self.directory / name
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._descriptor >= 0

    def acquire(self, holder: Mapping[str, object] | None = None) -> DirectoryLock:
        """Take the lock, or raise `run.directory-busy` (exit 2) when another process has it.

        The directory must exist. `holder` is written into the lock file beside process id and host.
        """
        if self.held:
            return self
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        with storage_errors(self.path):
            descriptor = os.open(self.path, flags, 0o644)
            try:
                if not _try_lock(descriptor):
                    raise _busy(self)
                record = {"host": socket.gethostname(), "pid": os.getpid(), **(holder or {})}
                data = canonical_json(record)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, data, 0)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        _register(self)
        return self

    def release(self) -> None:
        """Give the lock back; the file stays. Releasing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            _HELD.discard(self)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def holder(self) -> dict[str, object]:
        """What the last holder wrote about itself; empty when unknown."""
        return read_holder(self.path)

    def __enter__(self) -> DirectoryLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def forget_in_child(self) -> None:
        """Close a forked child's copy; the parent keeps the lock."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def is_locked(path: Path) -> bool:
    """Whether some process on this machine (or one the file system can see) holds the lock file
    `path`.

    Asks by taking a shared lock for an instant; `acquire` tries again often enough not to be misled
    by it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as fault:
        return fault.errno in {errno.EWOULDBLOCK, errno.EACCES}
    else:
        return False
    finally:
        os.close(descriptor)


def read_holder(path: Path) -> dict[str, object]:
    """The record in the lock file `path`; empty when there is none or it cannot be read."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, object]", record) if isinstance(record, dict) else {}


def _try_lock(descriptor: int) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 < _ATTEMPTS:
                time.sleep(_RETRY_S)
        else:
            return True
    return False


def _busy(lock: DirectoryLock) -> SolarError:
    holder = lock.holder()
    who = f"process {holder.get('pid', '?')} on {holder.get('host', 'another machine')}"
    return SolarError(
        "run.directory-busy",
        "another process is writing to this directory",
        where=str(lock.directory),
        why=f"The lock {lock.path.name} is held by {who}.",
        fixes=[
            "Choose another directory (--set runtime.output_dir=...).",
            "Wait for that run to end.",
        ],
        context={"holder": holder},
    )


def _register(lock: DirectoryLock) -> None:
    global _register_child_hook
    if _register_child_hook:
        os.register_at_fork(after_in_child=_forget_all_in_child)
        _register_child_hook = False
    _HELD.add(lock)


def _forget_all_in_child() -> None:
    for lock in list(_HELD):
        lock.forget_in_child()
    _HELD.clear()


_register_child_hook = True
