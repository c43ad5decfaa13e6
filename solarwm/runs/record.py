"""Reading and writing the small JSON files of a run so that no reader ever trips over them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None when it is absent, unreadable or something else."""
    try:
        record: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", record) if isinstance(record, dict) else None


def plain(value: object) -> Any:
    """`value` as JSON values: tuples as lists, paths and unknown objects as text, NaN as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): plain(item) for key, item in items}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in cast("Sequence[object]", value)]
    return str(value)
