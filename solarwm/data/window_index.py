"""The 153-frame window index of the published recipes: raw rows cut where a released index froze
them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from solarwm.data.index import iterate_rows
from solarwm.data.packing import index_bytes
from solarwm.data.windows import HASH_NAMESPACE_153, SIX_WINDOW_DATASETS, windows_153_six
from solarwm.errors.types import SolarError
from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import create_bytes, make_directories

SCHEMA = "solarwm.wan22-153f-window-index.v1"
FRAMES = 153
SPLITS = ("train", "test")
_SUFFIX = re.compile(r"(?P<source>.+)/latent-153f-w(?P<window>[0-9]{2})\Z")
_WINDOW_FIELDS = ("source_sample_id", "window_index", "window_count", "window_hash_namespace")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """What was written; the field names are the published keys."""

    schema: str
    output: str
    train_windows: int
    test_windows: int
    train_sources: int
    test_sources: int
    decompressed_sha256: str
    compressed_sha256: str

    def plain(self) -> dict[str, Any]:
        """The JSON value."""
        return asdict(self)


def materialize(
    *,
    raw: Mapping[str, Path],
    windows: Mapping[str, Path],
    output: Path,
) -> WindowReport:
    """Join raw indexes with released window indexes (each by split) into one new index.

    Train windows come first, then test windows, in the order of the released indexes; every source
    has all its windows exactly once. Raises SolarError `index.*` (exit 3) naming the row, and
    `cli.file-exists` (exit 2).
    """
    if output.exists():
        raise SolarError(
            "cli.file-exists", "the output exists", where=str(output), fixes=["choose another path"]
        )
    made: dict[str, list[Row]] = {}
    sources: dict[str, dict[str, Row]] = {}
    for split in SPLITS:
        sources[split] = {
            row["sample_id"]: row for row in _rows(raw[split]) if _raw(raw[split], row, split)
        }
        made[split] = _join(windows[split], sources[split], split)
    shared = sources["train"].keys() & sources["test"].keys()
    if shared:
        _refuse(raw["test"], sorted(shared)[0], "it stands in the train index too", "index.overlap")
    rows = [*made["train"], *made["test"]]
    data = index_bytes(rows)
    make_directories(output.absolute().parent)
    create_bytes(output, data)
    return WindowReport(
        schema=SCHEMA,
        output=str(output),
        train_windows=len(made["train"]),
        test_windows=len(made["test"]),
        train_sources=len(sources["train"]),
        test_sources=len(sources["test"]),
        decompressed_sha256=hashlib.sha256(b"".join(map(canonical_json, rows))).hexdigest(),
        compressed_sha256=hashlib.sha256(data).hexdigest(),
    )


def _rows(path: Path) -> list[Row]:
    return [row for _, row in iterate_rows(path)]


def _raw(path: Path, row: Row, split: str) -> bool:
    """Whether a raw row may be cut; raises where it may not."""
    name = row["sample_id"]
    roles = {row[key] for key in ("split", "role", "recipe_role") if row.get(key)}
    if roles != {split}:
        _refuse(path, name, f"it must declare the one role {split!r}, found {sorted(roles)}")
    found = [key for key in _WINDOW_FIELDS if key in row]
    if found:
        _refuse(path, name, f"a raw row has no {', '.join(found)}")
    if int(row.get("num_frames") or 0) < FRAMES:
        _refuse(path, name, f"{row.get('num_frames')} frames hold no window of {FRAMES}")
    if row.get("dataset") not in name.split("/")[:2]:
        _refuse(path, name, f"dataset {row.get('dataset')!r} is not in its first two parts")
    return True


def _join(path: Path, sources: Mapping[str, Row], split: str) -> list[Row]:
    made: list[Row] = []
    seen: dict[str, dict[int, int]] = {}
    for row in _rows(path):
        name = row["sample_id"]
        match = _SUFFIX.match(name)
        if match is None:
            _refuse(path, name, "its id does not end in /latent-153f-wNN")
        raw = sources.get(match["source"])
        if raw is None:
            _refuse(path, name, f"the raw {split} index has no {match['source']!r}")
        window = int(match["window"])
        key = f"{raw['key']}__latent153f_w{window:02d}"
        if row["key"] != key:
            _refuse(path, name, f"expected key {key!r}, found {row['key']!r}")
        indices = row.get("source_frame_indices") or []
        start = indices[0] if indices else -1
        if len(indices) != FRAMES or not 0 <= start <= raw["num_frames"] - FRAMES:
            _refuse(
                path,
                name,
                f"expected {FRAMES} indices within {raw['num_frames']} frames, found "
                f"{len(indices)} from {start}",
            )
        seen.setdefault(match["source"], {})[window] = start
        made.append({**raw, **_window(raw, row, window, split)})
    for source, raw in sources.items():
        _require_all(path, source, raw, seen.get(source, {}))
    return made


def _window(raw: Row, row: Row, window: int, split: str) -> Row:
    return {
        "sample_id": row["sample_id"],
        "key": row["key"],
        "start_frame": row["source_frame_indices"][0],
        "source_frame_indices": row["source_frame_indices"],
        "epoch_repeats": 1,
        "split": split,
        "source_sample_id": raw["sample_id"],
        "source_dataset": raw["dataset"],
        "window_index": window,
        "window_count": _count(raw),
        "window_hash_namespace": HASH_NAMESPACE_153,
    }


def _count(raw: Row) -> int:
    return 6 if raw["dataset"] in SIX_WINDOW_DATASETS else 1


def _require_all(path: Path, source: str, raw: Row, seen: Mapping[int, int]) -> None:
    if sorted(seen) != list(range(_count(raw))):
        _refuse(path, source, f"expected windows 0 to {_count(raw) - 1}, found {sorted(seen)}")
    if _count(raw) == 6:
        expected = windows_153_six(raw["num_frames"])
        found = tuple(seen[index] for index in range(6))
        if found != expected:
            _refuse(path, source, f"expected starts {list(expected)}, found {list(found)}")


def _refuse(path: Path, sample_id: str, why: str, code: str = "index.bad-field") -> NoReturn:
    raise SolarError(
        code,
        f"a row does not fit the window index: {sample_id}",
        where=str(path),
        why=why,
        context={"sample_id": sample_id},
    )
