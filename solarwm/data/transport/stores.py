"""Object stores behind one read: `gs://`, `s3://`, `http(s)://` and `hf://` through fsspec."""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from solarwm.errors.types import SolarError

Value = TypeVar("Value")

_EXTRAS = {"gs": "gcs", "s3": "s3", "http": "http", "https": "http", "hf": "run"}
_LATER = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a store is asked again. Delays grow from `first_delay_s` and are drawn below that."""

    read_s: float = 60.0
    """Longest single read."""
    total_s: float = 300.0
    """Longest fetch of one object, retries and waits for other processes included."""
    attempts: int = 8
    """Tries of one read."""
    first_delay_s: float = 0.1
    max_delay_s: float = 10.0


class ObjectStore:
    """Reads below one root address; safe to share between threads. Every read is retried.

    Raises SolarError `store.*` (exit 5) for a store that does not answer or refuses, `shard.missing`
    (exit 3) for an object that is not there.
    """

    def __init__(
        self,
        root: str,
        *,
        patience: Patience | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.root = root.rstrip("/")
        self.patience = patience or Patience()
        self.num_retries = 0
        self._options = options or {}
        self._scheme = root.partition("://")[0]
        self._system: Any = None

    def uri(self, key: str) -> str:
        """The full address of an object."""
        return f"{self.root}/{key}"

    def size(self, key: str, *, deadline: float) -> int:
        """Bytes of an object, as the store tells them; `deadline` is on the monotonic clock."""
        path = self._path(key)

        def ask() -> int:
            size = self._call("info", path)["size"]
            if size is None:
                raise OSError("the store does not tell the size")
            return int(size)

        return self._patiently(ask, key, deadline)

    def read(self, key: str, start: int, stop: int, *, size: int, deadline: float) -> bytes:
        """Bytes `start` to `stop` of an object of `size` bytes; never fewer, never others."""
        path = self._path(key)

        def ask() -> bytes:
            part: bytes = self._call("cat_file", path, start=start, end=stop)
            if len(part) == size != stop - start:
                part = part[start:stop]
            if len(part) != stop - start:
                raise OSError(f"bytes {start}..{stop} were asked for, {len(part)} came")
            return part

        return self._patiently(ask, key, deadline)

    def _path(self, key: str) -> str:
        if self._system is None:
            self._system = _open_system(self._scheme, self._options)
        return self._system._strip_protocol(self.uri(key))

    def _call(self, name: str, path: str, **fields: Any) -> Any:
        from fsspec.asyn import AsyncFileSystem, sync

        system = self._system
        if isinstance(system, AsyncFileSystem) and not system.asynchronous:
            call = getattr(system, f"_{name}")
            return sync(system.loop, call, path, timeout=self.patience.read_s, **fields)
        return getattr(system, name)(path, **fields)

    def _patiently(self, ask: Callable[[], Value], key: str, deadline: float) -> Value:
        patience = self.patience
        reasons: list[str] = []
        for attempt in range(patience.attempts):
            try:
                return ask()
            except FileNotFoundError:
                raise SolarError(
                    "shard.missing",
                    "the store has no such shard",
                    where=self.uri(key),
                    fixes=["check data.transport.root", "upload the shard"],
                    context={"shard": key},
                ) from None
            except Exception as fault:
                status = getattr(fault, "status", None)
                refused = isinstance(fault, PermissionError) or (
                    isinstance(status, int) and 400 <= status < 500 and status not in _LATER
                )
                if refused:
                    raise _denied(self.uri(key), fault) from None
                reasons.append(f"{type(fault).__name__}: {fault}"[:200])
            longest = min(patience.max_delay_s, patience.first_delay_s * 2**attempt)
            pause = random.uniform(longest / 2, longest)
            if attempt + 1 < patience.attempts:
                if time.monotonic() + pause >= deadline:
                    break
                self.num_retries += 1
                time.sleep(pause)
        raise SolarError(
            "store.no-answer",
            f"the store failed {len(reasons)} times on one read",
            where=self.uri(key),
            why=f"the last reason: {reasons[-1]}",
            fixes=[
                "look at the network and the store",
                "solarwm data warm-cache INDEX --root ROOT",
            ],
            context={"shard": key, "attempts": len(reasons)},
        )


def _open_system(scheme: str, options: dict[str, Any]) -> Any:
    try:
        fsspec = importlib.import_module("fsspec")
        return fsspec.filesystem(scheme, **options)
    except (ImportError, ValueError) as fault:
        extra = _EXTRAS.get(scheme, "data")
        raise SolarError(
            "data.extra-missing",
            f"reading {scheme}:// needs a package that is not installed",
            why=str(fault),
            fixes=[f"pip install 'solarwm[{extra}]'"],
        ) from None


def _denied(uri: str, fault: BaseException) -> SolarError:
    return SolarError(
        "store.denied",
        "the store refuses the read",
        where=uri,
        why=f"{type(fault).__name__}: {fault}"[:300],
        fixes=["check the credentials of this machine for that bucket"],
    )
