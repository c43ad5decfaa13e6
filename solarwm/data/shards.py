"""Tar shards read by offset: headers are scanned once, then every member is one positioned read."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path

from solarwm.data.keys import relative_key_fault
from solarwm.data.tar_table import Member, scan_tar
from solarwm.errors.types import SolarError

DEFAULT_MAX_OPEN = 8
_TABLE_SCHEMA = "solarwm.tar-table.v1"

_Stamp = tuple[str, int, int]
_tables: dict[_Stamp, dict[str, Member]] = {}
_tables_lock = threading.Lock()


@dataclass(slots=True)
class _OpenShard:
    descriptor: int
    stamp: _Stamp
    users: int = 0


class ShardReader:
    """Members of the shards under one root, by exact name; safe to share between threads.

    At most `max_open` shards stay open (more only while more threads read at once). Tables of
    member offsets live as long as the process, and in `table_dir` when one is given; nothing is
    ever written beside the data. `fetch` gives the local file of a shard that lies elsewhere,
    `origin` a text that changes when its bytes may have; `prefetch` takes the shards wanted next.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_open: int = DEFAULT_MAX_OPEN,
        table_dir: Path | None = None,
        fetch: Callable[[str, int | None], Path] | None = None,
        origin: Callable[[str], str] | None = None,
        prefetch: Callable[[Iterable[tuple[str, int | None]]], None] | None = None,
    ) -> None:
        self.root = Path(root)
        self._real_root = os.path.realpath(root)
        self._max_open = max_open
        self._table_dir = table_dir
        self._fetch = fetch
        self._origin = origin
        self._prefetch = prefetch
        self._open: OrderedDict[str, _OpenShard] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, shard: str, member: str, *, shard_size: int | None = None) -> bytes:
        """The bytes of one member. Raises SolarError `shard.*` (exit 3)."""
        with self._opened(shard, shard_size) as opened:
            found = self._table(opened, shard).get(member)
            if found is None:
                raise _fault(
                    "shard.missing-member",
                    "the shard has no such member",
                    shard,
                    member=member,
                    why=f"{member!r} is not among its {len(self._table(opened, shard))} members",
                    fixes=["check the *_member fields of the index row"],
                )
            if not found.is_regular:
                raise _fault(
                    "shard.not-a-file",
                    "the member is a link or device, not a file",
                    shard,
                    member=member,
                )
            return _read_all(opened.descriptor, found, shard, member)

    def members(self, shard: str, *, shard_size: int | None = None) -> Mapping[str, Member]:
        """Offsets and sizes of every member of a shard."""
        with self._opened(shard, shard_size) as opened:
            return self._table(opened, shard)

    def identity(self, shard: str, member: str) -> str:
        """A short text that changes when the stored bytes may have: shard path, size, time, and the
        member's place.
        """
        if self._origin is not None:
            text = json.dumps([self._origin(shard), member])
            return blake2s(text.encode(), digest_size=16).hexdigest()
        with self._opened(shard, None) as opened:
            found = self._table(opened, shard).get(member)
            text = json.dumps([*opened.stamp, member, found])
            return blake2s(text.encode(), digest_size=16).hexdigest()

    def look_ahead(self, shards: Iterable[tuple[str, int | None]]) -> None:
        """Say which shards, with their sizes, are read next; those of a store are fetched ahead."""
        if self._prefetch is not None:
            self._prefetch(shards)

    @property
    def is_remote(self) -> bool:
        """Whether shards lie in a store."""
        return self._fetch is not None

    @property
    def num_open(self) -> int:
        """Shards held open now."""
        return len(self._open)

    def close(self) -> None:
        """Close every shard that nobody reads."""
        with self._lock:
            for shard, opened in list(self._open.items()):
                if not opened.users:
                    os.close(opened.descriptor)
                    del self._open[shard]

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _opened(self, shard: str, shard_size: int | None) -> Generator[_OpenShard]:
        fetched = None
        if self._fetch is not None and shard not in self._open:
            if why := relative_key_fault(shard):
                raise _bad_key(shard, why)
            fetched = self._fetch(shard, shard_size)
        with self._lock:
            opened = self._open.get(shard)
            if opened is None:
                opened = self._open_shard(shard, fetched, shard_size)
                self._open[shard] = opened
            self._open.move_to_end(shard)
            opened.users += 1
            self._evict()
        try:
            found = opened.stamp[1]
            if shard_size is not None and found != shard_size:
                raise _fault(
                    "shard.wrong-size",
                    "the shard has another size than the index says",
                    shard,
                    why=f"{found} bytes on disk, shard_size is {shard_size}",
                    fixes=["copy or download the shard again"],
                )
            yield opened
        finally:
            with self._lock:
                opened.users -= 1

    def _open_shard(self, shard: str, fetched: Path | None, shard_size: int | None) -> _OpenShard:
        if why := relative_key_fault(shard):
            raise _bad_key(shard, why)
        if self._fetch is not None:
            # The file may have been evicted since; one that is open stays readable.
            fetched = fetched or self._fetch(shard, shard_size)
            if not fetched.exists():
                fetched = self._fetch(shard, shard_size)
            path = os.path.realpath(fetched)
        else:
            path = os.path.realpath(os.path.join(self._real_root, shard))
        if os.path.commonpath([path, self._real_root]) != self._real_root:
            raise _fault(
                "shard.bad-path",
                "the shard lies outside the data root",
                shard,
                why=f"{shard!r} leads out of {self.root}",
            )
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            raise _fault(
                "shard.missing" if missing else "shard.unreadable",
                "the shard does not exist" if missing else "the shard cannot be opened",
                shard,
                why=f"{path}: {error.strerror}",
                fixes=["check data.transport.root"],
            ) from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise _fault("shard.not-a-tar", "the shard is not a regular file", shard, why=path)
        if hasattr(os, "posix_fadvise"):
            # Members are read in any order: what the kernel reads ahead would be read for nothing.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return _OpenShard(descriptor, (path, status.st_size, status.st_mtime_ns))

    def _evict(self) -> None:
        for shard in list(self._open):
            if len(self._open) <= self._max_open:
                return
            if not self._open[shard].users:
                os.close(self._open.pop(shard).descriptor)

    def _table(self, opened: _OpenShard, shard: str) -> dict[str, Member]:
        table = _tables.get(opened.stamp)
        if table is None:
            with _tables_lock:
                table = _tables.get(opened.stamp)
                if table is None:
                    table = self._shared_table(opened, shard)
                    _tables[opened.stamp] = table
        return table

    def _shared_table(self, opened: _OpenShard, shard: str) -> dict[str, Member]:
        """The table on disk, else one scan by one process while the others wait for it."""
        path = self._table_path(opened.stamp)
        with _build_lock(path):
            table = self._stored_table(opened.stamp)
            if table is None:
                table = scan_tar(opened.descriptor, shard)
                self._store_table(opened.stamp, table)
        return table

    def _table_path(self, stamp: _Stamp) -> Path | None:
        if self._table_dir is None:
            return None
        return self._table_dir / f"{blake2s(stamp[0].encode(), digest_size=12).hexdigest()}.json"

    def _stored_table(self, stamp: _Stamp) -> dict[str, Member] | None:
        path = self._table_path(stamp)
        if path is None:
            return None
        try:
            stored = json.loads(path.read_bytes())
            if stored["schema"] != _TABLE_SCHEMA or tuple(stored["stamp"]) != stamp:
                return None
            table = {name: Member(*place) for name, place in stored["members"].items()}
        except (OSError, ValueError, TypeError, KeyError):
            return None
        whole = all(
            type(place.offset) is int and place.offset + place.size <= stamp[1]
            for place in table.values()
        )
        return table if whole else None

    def _store_table(self, stamp: _Stamp, table: dict[str, Member]) -> None:
        path = self._table_path(stamp)
        if path is None:
            return
        from solarwm.storage.durable import make_directories, write_bytes_atomic

        text = json.dumps({"schema": _TABLE_SCHEMA, "stamp": stamp, "members": table})
        # A table that cannot be kept is only built again next time.
        with suppress(SolarError, UnicodeEncodeError):
            make_directories(path.parent)
            write_bytes_atomic(path, text.encode())


@contextmanager
def _build_lock(path: Path | None) -> Generator[None]:
    """Held by one process at a time while it builds the table at `path`; gone with that process."""
    descriptor = -1
    if path is not None:
        # Without a lock the table is only built twice.
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(path.with_suffix(".lock"), flags, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _bad_key(shard: str, why: str) -> SolarError:
    return _fault("shard.bad-path", "the shard key is no relative key", shard, why=why)


def _read_all(descriptor: int, place: Member, shard: str, member: str) -> bytes:
    parts: list[bytes] = []
    offset, left = place.offset, place.size
    while left:
        try:
            part = os.pread(descriptor, left, offset)
        except OSError as error:
            raise _fault(
                "shard.unreadable",
                "a read of the shard failed",
                shard,
                member=member,
                why=str(error.strerror),
            ) from error
        if not part:
            raise _fault(
                "shard.truncated",
                "the shard became shorter while it was read",
                shard,
                member=member,
                why=f"no bytes at {offset}",
            )
        parts.append(part)
        offset += len(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _fault(
    code: str,
    headline: str,
    shard: str,
    *,
    member: str | None = None,
    why: str = "",
    fixes: list[str] | None = None,
) -> SolarError:
    context = {"shard": shard} | ({"member": member} if member else {})
    where = f"{shard}:{member}" if member else shard
    return SolarError(code, headline, where=where, why=why, fixes=fixes or [], context=context)
