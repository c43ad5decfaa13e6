"""What `solarwm checkpoint inspect` tells of weight files that are no checkpoints of ours. No torch."""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from solarwm.checkpoints.headers import FileHeaders, Header, read_headers

_SIZES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int16": 2}
_SIZES |= dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1)


def foreign(path: Path, *, keys: str | None, diff: Path | None) -> dict[str, Any]:
    """The report of a file: numbers, types, prefixes; with `keys` the tensors that match, with `diff`
    what another file has otherwise."""
    found = read_headers(path)
    report: dict[str, Any] = {
        "schema": "solarwm.weights-inspection.v1",
        "path": str(path),
        "kind": found.kind,
        "tensors": len(found.tensors),
        "parameters": sum(math.prod(item.shape) for item in found.tensors),
        "num_bytes": sum(math.prod(i.shape) * _SIZES.get(i.dtype, 4) for i in found.tensors),
        "dtypes": dict(Counter(item.dtype for item in found.tensors)),
        "prefixes": dict(Counter(_prefix(item.name) for item in found.tensors)),
        "not_tensors": list(found.others),
        "metadata": dict(found.metadata),
    }
    if keys is not None:
        report["keys"] = [_told(item) for item in found.tensors if fnmatch.fnmatch(item.name, keys)]
    if diff is not None:
        report["diff"] = difference(found, read_headers(diff))
    return report


def difference(one: FileHeaders, two: FileHeaders) -> dict[str, Any]:
    """Names only one of them has, and those with another shape or type."""
    left = {item.name: item for item in one.tensors}
    right = {item.name: item for item in two.tensors}
    return {
        "other": str(two.path),
        "only_here": sorted(set(left) - set(right)),
        "only_there": sorted(set(right) - set(left)),
        "differing": [
            {"name": name, "here": _told(left[name]), "there": _told(right[name])}
            for name in sorted(set(left) & set(right))
            if left[name] != right[name]
        ],
    }


def foreign_lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    from solarwm.storage.space import format_bytes

    yield (
        f"{report['path']}: {report['kind']}, {report['tensors']} tensors, "
        f"{report['parameters']:,} numbers, {format_bytes(report['num_bytes'])}"
    )
    yield "  types     " + ", ".join(f"{n} {t}" for t, n in report["dtypes"].items())
    shown = list(report["prefixes"].items())[:8]
    yield "  prefixes  " + ", ".join(f"{name} ({count})" for name, count in shown)
    for name in report["not_tensors"][:5]:
        yield f"  no tensor {name}"
    for item in report.get("keys", []):
        yield f"  {item['name']}  {item['shape']}  {item['dtype']}"
    if "diff" in report:
        diff = report["diff"]
        for side in ("only_here", "only_there"):
            yield f"  {side.replace('_', ' ')}: {len(diff[side])} {', '.join(diff[side][:5])}"
        for item in diff["differing"][:20]:
            here, there = item["here"], item["there"]
            yield f"  {item['name']}: {here['shape']} {here['dtype']}, there {there['shape']} {there['dtype']}"


def _prefix(name: str) -> str:
    set_name, _, rest = name.rpartition("/")
    first = rest.split(".")[0]
    return f"{set_name}/{first}" if set_name else first


def _told(item: Header) -> dict[str, Any]:
    return {"name": item.name, "shape": list(item.shape), "dtype": item.dtype}
