"""The index: which samples exist, in which order, and where their bytes lie."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import orjson

from solarwm.data import sidecar
from solarwm.data.columns import Table, tables
from solarwm.data.lines import iterate_lines
from solarwm.data.rows import IDENTITY_FIELDS, Row, row_fault, shard_identity, typed_row
from solarwm.errors.types import SolarError

_BATCH = 256
FaultSink = Callable[[SolarError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """All rows of one index file; row order is authoritative.

    The rows of a large index are decoded when they are looked at; ask for each no more often than
    needed.
    """

    path: Path
    rows: Sequence[Row]
    ends: Sequence[int] = field(repr=False)
    """Running sum of `epoch_repeats`: where the virtual occurrences of each row end."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_occurrences(self) -> int:
        """Virtual occurrences of one epoch: the sum of `epoch_repeats`."""
        return int(self.ends[-1])

    def occurrence(self, position: int) -> tuple[Row, int]:
        """The row at a virtual position of the epoch, and which repeat of it this is."""
        ordinal = bisect_right(self.ends, position)
        row = self.rows[ordinal]
        return row, position - (int(self.ends[ordinal]) - row.epoch_repeats)


def read_index(
    path: Path, *, cache: Path | None = None, least_bytes: int = sidecar.LEAST_BYTES
) -> Index:
    """The whole index, checked; raises SolarError `index.*` (exit 3) at the first fault.

    A file of `least_bytes` or more is checked once and its rows are kept in `cache` (default: the
    user's cache directory), so that the next reading takes no time and all processes of a machine
    share them. Where that cannot be, they are held in memory.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size >= least_bytes:
        stored = sidecar.stored_rows(
            path,
            lambda: _lines_of(path),
            parse=partial(_row_of, _Seen()),
            again=lambda: _anew(path, directory).rows,
            directory=(directory := cache or sidecar.cache_directory()),
        )
        if stored is not None:
            return Index(path=path, rows=stored, ends=stored.ends)  # type: ignore[arg-type]
    return _in_memory(path)


def _in_memory(path: Path) -> Index:
    rows = tuple(typed_row(row, ordinal) for ordinal, row in iterate_rows(path))
    return Index(path=path, rows=rows, ends=tuple(accumulate(row.epoch_repeats for row in rows)))


def _anew(path: Path, directory: Path) -> Index:
    """The index once more after its kept rows turned out damaged."""
    for place in directory.glob(f"{sidecar.owner_of(path)}-*.rows"):
        place.unlink(missing_ok=True)
    return read_index(path, cache=directory, least_bytes=0)


def _lines_of(path: Path) -> sidecar.Lines:
    for batch in iterate_batches(path):
        for line, row in zip(batch.lines, batch.rows, strict=True):
            yield line[2], row.get("epoch_repeats", 1)


def _row_of(seen: _Seen, line: bytes, ordinal: int) -> Row:
    """The typed row of a line that was checked before."""
    return typed_row(_parsed(line, seen), ordinal)


def head_rows(path: Path, count: int) -> tuple[Row, ...]:
    """The first rows only, without reading the rest (dry runs)."""
    rows: list[Row] = []
    for ordinal, row in iterate_rows(Path(path)):
        rows.append(typed_row(row, ordinal))
        if len(rows) >= count:
            break
    return tuple(rows)


def iterate_rows(
    path: Path,
    *,
    tap: Callable[[bytes], object] | None = None,
    on_fault: FaultSink | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(ordinal, parsed row) one by one, every row checked by the rules of the published format.

    `tap` sees the decompressed bytes. With `on_fault`, a bad row is handed there and skipped; a
    file that cannot be read on, or has no row at all, raises in either case.
    """
    for batch in iterate_batches(path, tap=tap, on_fault=on_fault):
        yield from zip(batch.ordinals, batch.rows, strict=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of an index that passed every check, in order."""

    ordinals: Sequence[int]
    lines: Sequence[tuple[int, int, bytes]]
    """(line number, byte offset, text) of each row."""
    rows: Sequence[dict[str, Any]]
    tables: Sequence[Table] | None
    """The same rows by columns, where they were checked so."""


def iterate_batches(
    path: Path,
    *,
    tap: Callable[[bytes], object] | None = None,
    on_fault: FaultSink | None = None,
) -> Iterator[Batch]:
    """As `iterate_rows`, many rows at a time."""
    path = Path(path)
    seen = _Seen()
    lines = iterate_lines(path, tap=tap)
    ordinal = 0
    while batch := _some(lines):
        taken = batch.lines
        quick = _quickly_checked(taken, seen)
        ordinals: Sequence[int] = range(ordinal, ordinal + len(taken))
        ordinal += len(taken)
        if quick:
            yield Batch(ordinals, taken, *quick)
        for one, line in () if quick else zip(ordinals, taken, strict=True):
            try:
                row = _parsed(line[2], seen)
                _check(row, path, seen)
            except _RowFault as found:
                fault = found.at(path, line[0], one, line[1])
                if on_fault is None:
                    raise fault from None
                on_fault(fault)
                continue
            yield Batch((one,), (line,), (row,), None)
        if batch.fault:
            raise batch.fault
    if not ordinal:
        raise SolarError(
            "index.no-rows",
            "the index has no rows",
            where=str(path),
            why="it holds blank lines only",
            fixes=["write the index again, for example: solarwm data synthesize --out DIR"],
        )


def ensure_disjoint(train: Index, test: Index) -> None:
    """Raises SolarError `index.overlap` (exit 3) when a sample id stands in both indexes."""
    few, many = sorted((train, test), key=len)
    ids = {row.sample_id for row in few.rows}
    shared = {row.sample_id for row in many.rows if row.sample_id in ids}
    if shared:
        shown = ", ".join(sorted(shared)[:3])
        raise SolarError(
            "index.overlap",
            f"{len(shared)} sample ids stand in both the train and the test index",
            where=str(test.path),
            why=f"for example {shown}",
            fixes=["remove them from one of the two indexes"],
        )


class _RowFault(Exception):
    """What is wrong with a row, before its place in the file is added."""

    def __init__(
        self, code: str, headline: str, why: str, *, name: str = "", sample: object = None
    ) -> None:
        super().__init__(headline)
        self.code = code
        self.why = why
        self.context: dict[str, object] = {}
        if name:
            self.context["field"] = name
        if isinstance(sample, str):
            self.context["sample_id"] = sample

    def at(self, path: Path, line: int, ordinal: int, offset: int) -> SolarError:
        """The error a person sees."""
        place = {"row": ordinal + 1, "line": line, "byte_offset": offset}
        return SolarError(
            self.code,
            str(self),
            where=f"{path}:{line}",
            why=f"{self.why} (row {ordinal + 1}, line {line}, byte {offset})",
            context=place | self.context,
        )


def _parsed(text: bytes, seen: _Seen) -> dict[str, Any]:
    """The row; a suspicious one as the standard library reads it, which also takes NaN and lone
    surrogates, and whole numbers of any size as such.
    """
    try:
        row = orjson.loads(text)
        if type(row) is dict and not row_fault(row, seen.shards):
            return row
    except orjson.JSONDecodeError:
        pass
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _RowFault("index.bad-json", "a row is not valid JSON", str(error)) from None
    if type(row) is not dict:
        kind = type(row).__name__
        raise _RowFault("index.bad-json", "a row is not a JSON object", f"it is a {kind}")
    return row


class _Seen:
    """What the rows so far have told."""

    __slots__ = ("identities", "ids", "shards")

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.shards: set[str] = set()
        self.identities: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {}

    def drift(self, row: Mapping[str, Any]) -> str | None:
        """How the row's shard differs from what an earlier row told, in words."""
        told = tuple(map(row.get, IDENTITY_FIELDS))
        known = self.identities.setdefault(row["shard"], (told, ()))
        if known[0] == told:
            return None
        if not known[1]:
            known = known[0], shard_identity(dict(zip(IDENTITY_FIELDS, known[0], strict=True)))
            self.identities[row["shard"]] = known
        if known[1] == (identity := shard_identity(row)):
            return None
        return f"{identity} here and {known[1]} in an earlier row"


@dataclass(frozen=True, slots=True)
class _Lines:
    lines: list[tuple[int, int, bytes]]
    fault: SolarError | None

    def __bool__(self) -> bool:
        return bool(self.lines or self.fault)


def _some(lines: Iterator[tuple[int, int, bytes]]) -> _Lines:
    """The next lines; a fault of the file comes after the lines before it."""
    taken: list[tuple[int, int, bytes]] = []
    try:
        taken.extend(islice(lines, _BATCH))
    except SolarError as fault:
        return _Lines(taken, fault)
    return _Lines(taken, None)


def _quickly_checked(
    lines: list[tuple[int, int, bytes]], seen: _Seen
) -> tuple[list[dict[str, Any]], list[Table]] | None:
    """The rows of these lines and their tables; None when they need a look one by one."""
    try:
        rows = [orjson.loads(line[2]) for line in lines]
    except orjson.JSONDecodeError:
        return None
    if set(map(type, rows)) != {dict}:
        return None
    parted = tables(rows)
    if not all(table.passes(seen.shards) for table in parted):
        return None
    ids = {row["sample_id"] for row in rows}
    if len(ids) < len(rows) or not seen.ids.isdisjoint(ids):
        return None
    told = {one for table in parted for one in table.taken("shard", *IDENTITY_FIELDS)}
    if len({one[0] for one in told}) < len(told):
        return None
    if any(seen.drift(dict(zip(("shard", *IDENTITY_FIELDS), one, strict=True))) for one in told):
        return None
    seen.ids |= ids
    return rows, parted


def _check(row: dict[str, Any], path: Path, seen: _Seen) -> None:
    if fault := row_fault(row, seen.shards):
        raise _RowFault(
            "index.bad-path" if fault.kind == "path" else "index.bad-field",
            f"field `{fault.field}` of a row is wrong",
            fault.why,
            name=fault.field,
            sample=row.get("sample_id"),
        )
    sample_id = row["sample_id"]
    if sample_id in seen.ids:
        raise _RowFault(
            "index.duplicate-id",
            f"sample id {sample_id!r} stands twice",
            f"it was first seen in line {_first_line(path, sample_id)}",
            name="sample_id",
            sample=sample_id,
        )
    seen.ids.add(sample_id)
    if why := seen.drift(row):
        raise _RowFault(
            "index.shard-drift",
            f"rows of shard {row['shard']!r} disagree about it",
            f"(generation, size, md5, digest) is {why}",
            name="shard_size",
            sample=sample_id,
        )


def _first_line(path: Path, sample_id: str) -> int:
    for number, _, text in iterate_lines(path):
        try:
            row = json.loads(text)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("sample_id") == sample_id:
            return number
    return 0
