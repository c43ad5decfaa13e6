"""Rows of an index by columns: a batch is checked field by field instead of row by row.

The answer is a quick yes: every rule of `rows.row_fault` surely holds for every row. A "no" tells
nothing; the check row by row decides then, and names what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solarwm.data.keys import relative_key_fault
from solarwm.data.rows import COUNT_FIELDS, IDENTITY_FIELDS, MEMBER_FIELDS, RULES, TEXT_FIELDS

_PLAIN = re.compile(r"[A-Za-z0-9._/-]*\Z")
_NAMES = ("sample_id", "key", "shard")
_STR, _INT = frozenset((str,)), frozenset((int,))
_STR_OR_NONE = frozenset((str, type(None)))
_NUMBER = frozenset((int, float))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with the same fields in the same order, and their values by field."""

    rows: Sequence[Mapping[str, Any]]
    columns: Mapping[str, tuple[Any, ...]]
    types: Mapping[str, frozenset[type]]
    """Which types stand in each column."""

    def passes(self, good_shards: set[str]) -> bool:
        """Whether no row has a fault; `good_shards` remembers shard keys passed."""
        columns, types = self.columns, self.types
        if any(types.get(name) != _STR or "" in columns[name] for name in _NAMES):
            return False
        fresh = set(columns["shard"]) - good_shards
        if any(map(relative_key_fault, fresh)):
            return False
        good_shards |= fresh
        if "shard_size" not in columns and any(name in columns for name in IDENTITY_FIELDS):
            return False
        return all(map(self._holds, columns))

    def taken(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """The values of some fields, row by row; None where the rows do not have one."""
        empty = (None,) * len(self.rows)
        return zip(*(self.columns.get(name, empty) for name in names), strict=True)

    def _holds(self, name: str) -> bool:
        rule = RULES.get(name)
        if rule is None:
            return True
        values, types = self.columns[name], self.types[name]
        if name in MEMBER_FIELDS:
            quick = types == _STR and _are_plain_keys(values)
        elif name in TEXT_FIELDS:
            quick = types <= _STR_OR_NONE
        elif name in COUNT_FIELDS:
            quick = types == _INT and min(values) >= 0
        elif name in ("epoch_repeats", "shard_size"):
            quick = types == _INT and min(values) >= 1
        elif name == "fps":
            quick = types <= _NUMBER and all(0 <= value < 1e6 for value in set(values))
        else:
            quick = False
        return quick or not any(map(rule, self.rows, (name,) * len(values), values))


def tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The rows, parted by their field names."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        names = tuple(row)
        if names in groups:
            groups[names].append(row)
        else:
            groups[names] = [row]
    found: list[Table] = []
    for names, same in groups.items():
        values = zip(*[row.values() for row in same], strict=True)
        columns = dict(zip(names, values, strict=True))
        types = {name: frozenset(map(type, column)) for name, column in columns.items()}
        found.append(Table(same, columns, types))
    return found


def _are_plain_keys(values: Sequence[str]) -> bool:
    """Whether all are relative keys of plain letters; no empty segment, none with a leading dot."""
    joined = f"/{'/'.join(values)}/"
    return "//" not in joined and "/." not in joined and _PLAIN.match(joined) is not None
