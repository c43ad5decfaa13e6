"""The index: which samples exist, in which order, and where their bytes lie."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from solarwm.data.lines import iterate_lines
from solarwm.data.rows import IDENTITY_FIELDS, Row, row_fault, shard_identity, typed_row
from solarwm.errors.types import SolarError

FaultSink = Callable[[SolarError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """All rows of one index file; row order is authoritative."""

    path: Path
    rows: tuple[Row, ...]
    ends: tuple[int, ...] = field(repr=False)
    """Running sum of `epoch_repeats`: where the virtual occurrences of each row end."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_occurrences(self) -> int:
        """Virtual occurrences of one epoch: the sum of `epoch_repeats`."""
        return self.ends[-1]

    def occurrence(self, position: int) -> tuple[Row, int]:
        """The row at a virtual position of the epoch, and which repeat of it this is."""
        ordinal = bisect_right(self.ends, position)
        row = self.rows[ordinal]
        return row, position - (self.ends[ordinal] - row.epoch_repeats)


def read_index(path: Path) -> Index:
    """The whole index, checked; raises SolarError `index.*` (exit 3) at the first fault."""
    rows = tuple(typed_row(row, ordinal) for ordinal, row in iterate_rows(Path(path)))
    return Index(
        path=Path(path), rows=rows, ends=tuple(accumulate(row.epoch_repeats for row in rows))
    )


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
    see_line: Callable[[bytes, dict[str, Any]], object] | None = None,
    on_fault: FaultSink | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(ordinal, parsed row) one by one, every row checked by the rules of the published format.

    `tap` sees the decompressed bytes, `see_line` each good row with its text. With `on_fault`, a
    bad row is handed there and skipped; a file that cannot be read on, or has no row at all, raises
    in either case.
    """
    path = Path(path)
    seen: set[str] = set()
    good_shards: set[str] = set()
    identities: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {}
    ordinal = -1
    for ordinal, (number, offset, text) in enumerate(iterate_lines(path, tap=tap)):
        try:
            row = _parsed(text)
            _check(row, path, seen, good_shards, identities)
        except _RowFault as found:
            fault = found.at(path, number, ordinal, offset)
            if on_fault is None:
                raise fault from None
            on_fault(fault)
            continue
        if see_line:
            see_line(text, row)
        yield ordinal, row
    if ordinal < 0:
        raise SolarError(
            "index.no-rows",
            "the index has no rows",
            where=str(path),
            why="it holds blank lines only",
            fixes=["write the index again, for example: solarwm data synthesize --out DIR"],
        )


def ensure_disjoint(train: Index, test: Index) -> None:
    """Raises SolarError `index.overlap` (exit 3) when a sample id stands in both indexes."""
    shared = {row.sample_id for row in train.rows} & {row.sample_id for row in test.rows}
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


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        # The standard library also takes NaN and lone surrogates, as the published reader does.
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _RowFault("index.bad-json", "a row is not valid JSON", str(error)) from None
    if type(row) is not dict:
        kind = type(row).__name__
        raise _RowFault("index.bad-json", "a row is not a JSON object", f"it is a {kind}")
    return row


def _check(
    row: dict[str, Any],
    path: Path,
    seen: set[str],
    good_shards: set[str],
    identities: dict[str, tuple[tuple[object, ...], tuple[object, ...]]],
) -> None:
    if fault := row_fault(row, good_shards):
        raise _RowFault(
            "index.bad-path" if fault.kind == "path" else "index.bad-field",
            f"field `{fault.field}` of a row is wrong",
            fault.why,
            name=fault.field,
            sample=row.get("sample_id"),
        )
    sample_id = row["sample_id"]
    if sample_id in seen:
        raise _RowFault(
            "index.duplicate-id",
            f"sample id {sample_id!r} stands twice",
            f"it was first seen in line {_first_line(path, sample_id)}",
            name="sample_id",
            sample=sample_id,
        )
    seen.add(sample_id)
    told = _identity_of(row)
    known = identities.get(row["shard"])
    if known is None:
        identities[row["shard"]] = told, shard_identity(row)
    elif known[0] != told and known[1] != (identity := shard_identity(row)):
        raise _RowFault(
            "index.shard-drift",
            f"rows of shard {row['shard']!r} disagree about it",
            f"(generation, size, md5, digest) is {identity} here and {known[1]} in an earlier row",
            name="shard_size",
            sample=sample_id,
        )


def _identity_of(row: dict[str, Any]) -> tuple[object, ...]:
    """The identity fields as they stand in the row."""
    get = row.get
    return tuple(map(get, IDENTITY_FIELDS))


def _first_line(path: Path, sample_id: str) -> int:
    for number, _, text in iterate_lines(path):
        try:
            row = json.loads(text)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("sample_id") == sample_id:
            return number
    return 0
