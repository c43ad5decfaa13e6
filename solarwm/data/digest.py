"""The three published digests of an index, in one pass over the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from typing import Any

from solarwm.data.index import FaultSink, iterate_rows
from solarwm.errors.types import SolarError

_PLAIN_TYPES = frozenset((str, int, bool, type(None)))
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What `data inspect` tells; the field names are the published keys."""

    index: str
    rows: int
    virtual_occurrences: int
    ordered_sample_id_digest: str
    ordered_row_digest: str
    decompressed_digest: str


def inspect_index(path: Path, *, on_fault: FaultSink | None = None) -> IndexReport:
    """Rows, virtual occurrences and digests of an index.

    Raises SolarError `index.*` (exit 3) for a bad index; a row with NaN or a lone surrogate has no
    digest and is `index.no-digest`.
    """
    path = Path(path)
    whole, ids, rows = blake2s(), blake2s(), blake2s()
    num_rows = 0
    occurrences = 0

    def see(text: bytes, row: dict[str, Any]) -> None:
        nonlocal num_rows, occurrences
        try:
            rows.update(canonical_row(text, row))
            ids.update(row["sample_id"].encode() + b"\n")
        except (ValueError, RecursionError) as error:
            raise SolarError(
                "index.no-digest",
                "a row cannot be written as canonical JSON",
                where=str(path),
                why=str(error),
                context={"row": num_rows + 1, "sample_id": repr(row["sample_id"])},
            ) from None
        num_rows += 1
        occurrences += row.get("epoch_repeats", 1)

    for _ in iterate_rows(path, tap=whole.update, see_line=see, on_fault=on_fault):
        pass
    return IndexReport(
        index=str(path.resolve()),
        rows=num_rows,
        virtual_occurrences=occurrences,
        ordered_sample_id_digest=ids.hexdigest(),
        ordered_row_digest=rows.hexdigest(),
        decompressed_digest=whole.hexdigest(),
    )


def canonical_row(text: bytes, row: Mapping[str, Any]) -> bytes:
    """Canonical JSON of a parsed row with its line feed; `text` is the JSON it was parsed from.

    Raises ValueError where the standard library does (NaN, infinity, lone surrogates).
    """
    if all(type(value) in _PLAIN_TYPES or _is_safe(value) for value in row.values()):
        import orjson

        try:
            return orjson.dumps(row, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
        except TypeError:
            pass
    exact = json.loads(text)
    return _ENCODER.encode(exact).encode() + b"\n"


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
