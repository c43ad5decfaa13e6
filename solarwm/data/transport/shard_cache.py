"""Shards of an object store on local disk: shared by all processes, bounded in size, never torn.

A shard is fetched by several ranged reads at once into a private file, checked, synced, renamed and
given a receipt; only a file that equals its receipt is used. The kernel lock of a shard dies with
its holder, so a killed fetch leaves a private file that the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path

from solarwm.data.transport.stores import ObjectStore
from solarwm.errors.types import SolarError
from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import make_directories, storage_errors, write_bytes_atomic
from solarwm.storage.space import require_free

RECEIPT_SCHEMA = "solarwm.shard-receipt.v1"
PART_BYTES = 8 * 2**20
READS_IN_FLIGHT = 8
FETCHERS = 4
"""Shards fetched ahead at the same time."""
_POLL_S = 0.05


@dataclass(slots=True)
class CacheCounts:
    """What a cache did since it was opened."""

    hits: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    evicted: int = 0


class ShardCache:
    """Local files of a store's shards; safe to share between threads and processes."""

    def __init__(
        self,
        store: ObjectStore,
        directory: Path,
        *,
        max_bytes: int,
        digests: Mapping[str, str] | None = None,
        part_bytes: int = PART_BYTES,
        reads_in_flight: int = READS_IN_FLIGHT,
    ) -> None:
        self.store = store
        self.directory = Path(directory)
        self.counts = CacheCounts()
        self._max_bytes = max_bytes
        self._digests = digests or {}
        self._part_bytes = part_bytes
        self._reads_in_flight = reads_in_flight
        self._wanted: set[str] = set()
        self._waiting: deque[tuple[str, int | None]] = deque()
        self._fetchers = 0
        self._ahead_lock = threading.Lock()

    def path(self, key: str, size: int | None = None) -> Path:
        """The local file of a shard, fetched when it is not there yet.

        Raises SolarError `shard.missing`, `shard.wrong-size`, `shard.wrong-digest` (exit 3),
        `store.*` and `disk.*` (exit 5).
        """
        deadline = time.monotonic() + self.store.patience.total_s
        make_directories(self.directory)
        target = self._target(key)
        with self._locked(target, key, deadline):
            if self._is_whole(target, key, size):
                self.counts.hits += 1
                with contextlib.suppress(OSError):
                    os.utime(_receipt(target))
                return target
            self._fetch(target, key, size, deadline)
        self._evict(keep=target)
        return target

    def prefetch(self, keys: Iterable[tuple[str, int | None]]) -> None:
        """Fetch shards ahead of their reads, `FETCHERS` at once; each call says anew which are
        wanted, those of earlier calls that have not begun are dropped. A failure is left to the
        read that needs the shard."""
        wanted = dict(keys)
        with self._ahead_lock:
            self._waiting = deque(item for item in self._waiting if item[0] in wanted)
            self._waiting.extend(item for item in wanted.items() if item[0] not in self._wanted)
            self._wanted = set(wanted)
            missing = min(FETCHERS - self._fetchers, len(self._waiting))
            self._fetchers += missing
        for _ in range(missing):
            threading.Thread(target=self._fetch_ahead, name="solarwm-prefetch", daemon=True).start()

    def _fetch_ahead(self) -> None:
        while True:
            with self._ahead_lock:
                if not self._waiting:
                    self._fetchers -= 1
                    return
                key, size = self._waiting.popleft()
            with contextlib.suppress(SolarError):
                self.path(key, size)

    def _target(self, key: str) -> Path:
        digest = blake2s(self.store.uri(key).encode()).hexdigest()[:24]
        return self.directory / f"{digest}-{key.rpartition('/')[2][-120:]}"

    def _is_whole(self, target: Path, key: str, size: int | None) -> bool:
        receipt = _read_receipt(target)
        if receipt is None or receipt.get("uri") != self.store.uri(key):
            return False
        digest = self._digests.get(key)
        if digest and receipt.get("digest") != digest:
            return False
        return (size is None or receipt.get("size") == size) and receipt.get("stat") == _stat(
            target
        )

    def _fetch(self, target: Path, key: str, size: int | None, deadline: float) -> None:
        self._drop_parts(target)
        found = self.store.size(key, deadline=deadline)
        if size is not None and found != size:
            raise SolarError(
                "shard.wrong-size",
                "the shard has another size than the index says",
                where=self.store.uri(key),
                why=f"{found} bytes in the store, shard_size is {size}",
                fixes=["upload the shard again", "rebuild the index"],
                context={"shard": key},
            )
        if found > self._max_bytes:
            raise SolarError(
                "store.cache-too-small",
                "one shard is larger than the whole cache",
                where=self.store.uri(key),
                why=f"{found} bytes; the cache holds {self._max_bytes}",
                fixes=[f"--set data.transport.cache_max_gib={found // 2**30 + 1}"],
            )
        require_free(self.directory, found)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            digest = self._download(part, key, found, deadline)
            with storage_errors(target):
                os.replace(part, target)
            body = {
                "schema": RECEIPT_SCHEMA,
                "uri": self.store.uri(key),
                "size": found,
                "digest": digest,
                "stat": _stat(target),
            }
            write_bytes_atomic(_receipt(target), canonical_json(body))
        finally:
            part.unlink(missing_ok=True)
        self.counts.fetched += 1
        self.counts.fetched_bytes += found

    def _download(self, part: Path, key: str, size: int, deadline: float) -> str:
        ranges = [
            (start, min(start + self._part_bytes, size))
            for start in range(0, size, self._part_bytes)
        ]
        with storage_errors(part):
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            failed = threading.Event()

            def take(bounds: tuple[int, int]) -> None:
                if failed.is_set():
                    return
                try:
                    data = self.store.read(key, *bounds, size=size, deadline=deadline)
                    view, offset = memoryview(data), bounds[0]
                    while view:
                        written = os.pwrite(descriptor, view, offset)
                        view, offset = view[written:], offset + written
                except BaseException:
                    failed.set()
                    raise

            try:
                with ThreadPoolExecutor(self._reads_in_flight, "solarwm-range") as pool:
                    for done in [pool.submit(take, bounds) for bounds in ranges]:
                        done.result()
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        wanted = self._digests.get(key)
        if not wanted:
            return ""
        with storage_errors(part):
            found = _digest(part)
        if found != wanted:
            raise SolarError(
                "shard.wrong-digest",
                "the shard is not the one that the index names",
                where=self.store.uri(key),
                why=f"BLAKE2s {found}, shard_digest is {wanted}",
                fixes=["upload the shard again", "rebuild the index"],
                context={"shard": key},
            )
        return found

    def _drop_parts(self, target: Path) -> None:
        for orphan in self.directory.glob(f".{target.name}.*.part"):
            orphan.unlink(missing_ok=True)

    def _evict(self, *, keep: Path) -> None:
        """Remove the longest unused shards until the rest fits; those in use by a lock stay."""
        with _flock(self.directory / ".evict.lock", blocking=False) as held:
            if not held:
                return
            known: list[tuple[float, int, Path]] = []
            for receipt in self.directory.glob("*.receipt.json"):
                target = receipt.with_name(receipt.name.removesuffix(".receipt.json"))
                with contextlib.suppress(OSError):
                    known.append((receipt.stat().st_mtime, target.stat().st_size, target))
            total = sum(size for _, size, _ in known)
            for _, size, target in sorted(known):
                if total <= self._max_bytes:
                    return
                if target == keep:
                    continue
                with _flock(_lock(target), blocking=False) as free:
                    if free:
                        _receipt(target).unlink(missing_ok=True)
                        target.unlink(missing_ok=True)
                        total -= size
                        self.counts.evicted += 1

    @contextlib.contextmanager
    def _locked(self, target: Path, key: str, deadline: float) -> Generator[None]:
        while True:
            with _flock(_lock(target), blocking=False) as held:
                if held:
                    yield
                    return
            if time.monotonic() >= deadline:
                raise SolarError(
                    "store.no-answer",
                    "another process did not finish fetching a shard",
                    where=self.store.uri(key),
                    why=f"its lock {_lock(target)} was held for {self.store.patience.total_s:g} s",
                    fixes=["look at that process", "look at the network and the store"],
                    context={"shard": key},
                )
            time.sleep(_POLL_S)


@contextlib.contextmanager
def _flock(path: Path, *, blocking: bool) -> Generator[bool]:
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _receipt(target: Path) -> Path:
    return target.with_name(f"{target.name}.receipt.json")


def _lock(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _read_receipt(target: Path) -> dict[str, object] | None:
    try:
        body = json.loads(_receipt(target).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(body, dict) or body.get("schema") != RECEIPT_SCHEMA:
        return None
    return body


def _stat(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _digest(path: Path) -> str:
    state = blake2s()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            state.update(piece)
    return state.hexdigest()
