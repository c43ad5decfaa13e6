"""The three published digests of an index, in one pass over the file."""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2s
from itertools import repeat
from pathlib import Path
from typing import Any

import orjson

from solarwm.data.columns import Table
from solarwm.data.index import FaultSink, iterate_batches
from solarwm.errors.types import SolarError

_PLAIN_TYPES = frozenset((str, int, bool, type(None)))
_SORTED_LINE = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
_WAITING = 8
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What `data inspect` tells; the field names are the published keys. Digests that were not asked
    for are empty."""

    index: str
    rows: int
    virtual_occurrences: int
    ordered_sample_id_digest: str
    ordered_row_digest: str
    decompressed_digest: str


def inspect_index(
    path: Path, *, digests: bool = True, on_fault: FaultSink | None = None
) -> IndexReport:
    """Rows, virtual occurrences and digests of an index; without `digests` every row is checked all
    the same.

    Raises SolarError `index.*` (exit 3) for a bad index; a row with NaN or a lone surrogate has no
    digest and is `index.no-digest`.
    """
    # Parsed rows hold no cycles; looking for some costs a quarter of the whole pass.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _inspected(Path(path), on_fault) if digests else _counted(Path(path), on_fault)
    finally:
        if was_enabled:
            gc.enable()


def _inspected(path: Path, on_fault: FaultSink | None) -> IndexReport:
    whole, ids, rows = blake2s(), blake2s(), blake2s()
    num_rows = 0
    occurrences = 0
    with _Beside() as beside:

        def tap(chunk: bytes) -> None:
            beside.call(whole.update, chunk)

        for batch in iterate_batches(path, tap=tap, on_fault=on_fault):
            try:
                quick = batch.tables is not None and all(map(_table_is_safe, batch.tables))
                texts = list(map(_row_text, batch.rows)) if quick else None
            except (TypeError, RecursionError):
                texts = None
            if texts is None:
                texts = list(
                    map(_digestible, repeat(path), batch.ordinals, batch.lines, batch.rows)
                )
            beside.call(rows.update, b"".join(texts))
            ids.update("".join([row["sample_id"] + "\n" for row in batch.rows]).encode())
            num_rows += len(batch.rows)
            occurrences += sum([row.get("epoch_repeats", 1) for row in batch.rows])
    return IndexReport(
        index=str(path.resolve()),
        rows=num_rows,
        virtual_occurrences=occurrences,
        ordered_sample_id_digest=ids.hexdigest(),
        ordered_row_digest=rows.hexdigest(),
        decompressed_digest=whole.hexdigest(),
    )


def _counted(path: Path, on_fault: FaultSink | None) -> IndexReport:
    num_rows = 0
    occurrences = 0
    for batch in iterate_batches(path, on_fault=on_fault):
        num_rows += len(batch.rows)
        occurrences += sum([row.get("epoch_repeats", 1) for row in batch.rows])
    return IndexReport(
        index=str(path.resolve()),
        rows=num_rows,
        virtual_occurrences=occurrences,
        ordered_sample_id_digest="",
        ordered_row_digest="",
        decompressed_digest="",
    )


class _Beside:
    """Calls in one thread beside the caller's, in order: hashing does not hold the interpreter
    lock. At most `_WAITING` calls wait, so that memory stays small."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="digest")
        self._waiting: deque[Future[object]] = deque()

    def __enter__(self) -> _Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True)
        while self._waiting:
            self._waiting.popleft().result()

    def call(self, work: Callable[[bytes], object], data: bytes) -> None:
        """Do it soon; waits while too much is waiting."""
        self._waiting.append(self._thread.submit(work, data))
        if len(self._waiting) > _WAITING:
            self._waiting.popleft().result()


def canonical_row(text: bytes, row: Mapping[str, Any]) -> bytes:
    """Canonical JSON of a parsed row with its line feed; `text` is the JSON it was parsed from.

    Raises ValueError where the standard library does (NaN, infinity, lone surrogates).
    """
    try:
        if all(map(_is_safe, row.values())):
            return _row_text(row)
    except (TypeError, RecursionError):
        pass
    exact = json.loads(text)
    return _ENCODER.encode(exact).encode() + b"\n"


def _digestible(
    path: Path, ordinal: int, line: tuple[int, int, bytes], row: Mapping[str, Any]
) -> bytes:
    number, offset, text = line
    try:
        row["sample_id"].encode()
        return canonical_row(text, row)
    except (ValueError, RecursionError) as error:
        raise SolarError(
            "index.no-digest",
            "a row cannot be written as canonical JSON",
            where=f"{path}:{number}",
            why=f"{error} (row {ordinal + 1}, line {number}, byte {offset})",
            context={
                "row": ordinal + 1,
                "line": number,
                "byte_offset": offset,
                "sample_id": repr(row["sample_id"]),
            },
        ) from None


def _row_text(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=_SORTED_LINE)


def _table_is_safe(table: Table) -> bool:
    for name, types in table.types.items():
        if types <= _PLAIN_TYPES:
            continue
        values = table.columns[name]
        if not all(map(_is_safe, set(values) if types == {float} else values)):
            return False
    return True


def _is_safe(value: Any) -> bool:
    """Whether orjson read and writes this value as the standard library does.

    It does not for floats that are written with an exponent, for whole numbers beyond 64 bits
    (which it reads as such floats), and for NaN and infinity.
    """
    kind = type(value)
    if kind is float:
        return value == 0 or 1e-4 <= abs(value) < 1e16
    if kind is dict:
        return all(map(_is_safe, value.values()))
    if kind is list:
        return all(map(_is_safe, value))
    return True
