"""Rows of a large index kept beside it in the user's cache: opened at once, shared by all ranks of a
machine through the page cache, decoded when they are looked at.

`CACHE/solarwm/indexes/NAME.rows`, little-endian: zlib blocks of 64 rows (the lines of the index as they
stand), then the running sums of `epoch_repeats` (int64), where each block begins (int64, one more
than blocks), a CRC-32 a block (uint32), a JSON header, and 24 bytes that tell where these begin,
their CRC-32 and the header's length. NAME holds the size and the time of change of the index. Written
under a hidden name, then renamed.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, overload

import numpy as np
from numpy.typing import NDArray

from solarwm.data.rows import Row
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex
from solarwm.storage.durable import private_sibling
from solarwm.storage.locks import DirectoryLock

BLOCK_ROWS = 64
LEAST_BYTES = 4 << 20
"""Indexes below this are read whole: that is as quick, and small."""
SCHEMA = "solarwm.index-rows.v1"
WAIT_S = 600.0
"""Longest wait for another process that writes the same rows."""
KEPT_BLOCKS = 64
"""Decoded blocks each process keeps."""
_MAGIC = b"SWMROWS1"
_FOOT = struct.Struct("<8sQII")

Lines = Iterator[tuple[bytes, int]]
"""(line, epoch repeats) of every row, in order, checked."""


class Damaged(Exception):
    """A file of rows that is cut off, changed, or of another kind."""


class StoredRows(Sequence[Row]):
    """The rows of an index out of a file of rows. Safe to share between threads and after a fork.

    A block that turns out damaged is not used: `again` gives the rows anew.
    """

    def __init__(
        self,
        path: Path,
        *,
        parse: Callable[[bytes, int], Row],
        again: Callable[[], Sequence[Row]],
    ) -> None:
        self._table = _Table(path)
        self._parse = parse
        self._again = again
        self._instead: Sequence[Row] | None = None
        self._block = lru_cache(maxsize=KEPT_BLOCKS)(self._decoded)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Running sums of `epoch_repeats`, mapped from the file."""
        return self._table.ends

    def __len__(self) -> int:
        return len(self._table.ends)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(place, slice):
            return tuple(self[ordinal] for ordinal in range(*place.indices(len(self))))
        ordinal = place + len(self) if place < 0 else place
        if not 0 <= ordinal < len(self):
            raise IndexError(f"row {place} of {len(self)}")
        if self._instead is None:
            with suppress(Damaged):
                return self._block(ordinal // BLOCK_ROWS)[ordinal % BLOCK_ROWS]
        return self._fresh()[ordinal]

    def __iter__(self) -> Iterator[Row]:
        for number in range(self._table.num_blocks):
            try:
                block = self._decoded(number) if self._instead is None else None
            except Damaged:
                block = None
            if block is None:
                yield from islice(self._fresh(), number * BLOCK_ROWS, None)
                return
            yield from block

    def _fresh(self) -> Sequence[Row]:
        if self._instead is None:
            self._instead = self._again()
        return self._instead

    def _decoded(self, number: int) -> tuple[Row, ...]:
        first = number * BLOCK_ROWS
        lines = self._table.block(number).split(b"\n")
        if len(lines) != min(BLOCK_ROWS, len(self) - first):
            raise Damaged(f"block {number} has {len(lines)} rows")
        return tuple(self._parse(line, first + place) for place, line in enumerate(lines))


class _Table:
    """A mapped file of rows whose footer, header and columns are sound."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise Damaged(str(error)) from None
        if len(self._map) < _FOOT.size:
            raise Damaged("too short")
        magic, start, check, header_size = _FOOT.unpack(self._map[-_FOOT.size :])
        end = len(self._map) - _FOOT.size
        if magic != _MAGIC or not 0 <= start <= end - header_size:
            raise Damaged("no footer")
        view = memoryview(self._map)
        if zlib.crc32(view[start:end]) != check:
            raise Damaged("the columns are changed")
        header: dict[str, Any] = json.loads(bytes(view[end - header_size : end]))
        rows, self.num_blocks = int(header["rows"]), int(header["blocks"])
        self.ends: NDArray[np.int64] = np.frombuffer(view, "<i8", rows, start)
        start += 8 * rows
        self._begins: NDArray[np.int64] = np.frombuffer(view, "<i8", self.num_blocks + 1, start)
        start += 8 * (self.num_blocks + 1)
        self._checks: NDArray[np.uint32] = np.frombuffer(view, "<u4", self.num_blocks, start)
        self._view = view

    def block(self, number: int) -> bytes:
        """The lines of a block, joined."""
        packed = self._view[int(self._begins[number]) : int(self._begins[number + 1])]
        if zlib.crc32(packed) != int(self._checks[number]):
            raise Damaged(f"block {number} is changed")
        return zlib.decompress(packed)


def cache_directory(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """Where files of rows lie: `$XDG_CACHE_HOME` or `~/.cache`, then `solarwm/indexes`."""
    root = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "solarwm" / "indexes"


def owner_of(index: Path) -> str:
    """What the names of all files of rows of this index begin with."""
    return blake2s_hex(os.fsencode(index.resolve()))[:24]


def stored_rows(
    index: Path,
    lines: Callable[[], Lines],
    *,
    parse: Callable[[bytes, int], Row],
    again: Callable[[], Sequence[Row]],
    directory: Path,
    wait_s: float = WAIT_S,
) -> StoredRows | None:
    """The rows of `index` out of the cache, written there first if they are not, by one process of
    this machine; None where the cache cannot be written or another writer does not come to an end.

    `lines` reads and checks the index and raises what is wrong with it.
    """
    found = index.stat()
    owner = owner_of(index)
    place = directory / f"{owner}-{found.st_size}-{found.st_mtime_ns}.rows"
    deadline = time.monotonic() + wait_s
    while True:
        with suppress(Damaged):
            return StoredRows(place, parse=parse, again=again)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with DirectoryLock(directory, name=f".{owner}.lock"):
                with suppress(Damaged):
                    return StoredRows(place, parse=parse, again=again)
                _write(place, lines())
                for older in directory.glob(f"{owner}-*.rows"):
                    if older != place:
                        older.unlink(missing_ok=True)
            return StoredRows(place, parse=parse, again=again)
        except SolarError as error:
            if error.code != "run.directory-busy":
                if error.code.startswith(("disk.", "storage.")):
                    return None
                raise
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)
        except (OSError, Damaged):
            return None


def _write(place: Path, lines: Lines) -> None:
    private = private_sibling(place)
    try:
        with private.open("xb") as file:
            _write_into(file, lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(private, place)
    except BaseException:
        private.unlink(missing_ok=True)
        raise


def _write_into(file: IO[bytes], lines: Lines) -> None:
    begins, checks, repeats = [0], [], []
    while block := list(islice(lines, BLOCK_ROWS)):
        packed = zlib.compress(b"\n".join(line for line, _ in block), 1)
        repeats += [count for _, count in block]
        checks.append(zlib.crc32(packed))
        begins.append(begins[-1] + len(packed))
        file.write(packed)
    padding = -begins[-1] % 8
    file.write(bytes(padding))
    header = {"schema": SCHEMA, "rows": len(repeats), "blocks": len(checks)}
    trailer = b"".join(
        (
            np.cumsum(np.asarray(repeats, dtype="<i8")).astype("<i8").tobytes(),
            np.asarray(begins, dtype="<i8").tobytes(),
            np.asarray(checks, dtype="<u4").tobytes(),
            told := json.dumps(header).encode(),
        )
    )
    file.write(trailer)
    file.write(_FOOT.pack(_MAGIC, begins[-1] + padding, zlib.crc32(trailer), len(told)))
