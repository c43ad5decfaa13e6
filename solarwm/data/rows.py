"""One row of an index: what the fields may hold, and the typed value made of them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from solarwm.data.keys import relative_key_fault

MEMBER_FIELDS = (
    "video_member",
    "camera_member",
    "intrinsics_member",
    "manifest_member",
    "preencoded_member",
    "provenance_member",
    "ltx25_preencoded_member",
    "h3_preencoded_member",
    "h3_provenance_member",
)
IDENTITY_FIELDS = ("shard_generation", "shard_size", "shard_md5_b64", "shard_digest")
_TEXT_FIELDS = ("caption", "dataset", "source_sample_id", "source_dataset", "kept_tier", "split")
_COUNT_FIELDS = ("num_frames", "start_frame", "width", "height")
_INT_TEXT = re.compile(r"[0-9]+\Z")
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class FieldFault:
    """What is wrong with one field of a row: `kind` is `path` or `field`."""

    field: str
    why: str
    kind: str = "field"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One index row. `num_frames` and `fps` are 0 where neither the row nor its inline manifest
    tells them.
    """

    ordinal: int
    sample_id: str
    key: str
    shard: str
    epoch_repeats: int = 1
    shard_size: int | None = None
    num_frames: int = 0
    fps: float = 0.0
    start_frame: int | None = None
    source_frame_indices: tuple[int, ...] | None = None
    video_member: str | None = None
    camera_member: str | None = None
    intrinsics_member: str | None = None
    manifest_member: str | None = None
    manifest: Mapping[str, Any] | None = None
    caption: str | None = None
    dataset: str | None = None
    width: int | None = None
    height: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Every field this release gives no type, as read."""


_TYPED = frozenset(column.name for column in fields(Row)) - {"ordinal", "extra"}


def row_fault(row: Mapping[str, Any], good_shards: set[str]) -> FieldFault | None:
    """The first thing wrong with a parsed row, or None. `good_shards` remembers shard keys already
    passed.
    """
    for name in ("sample_id", "key", "shard"):
        value = row.get(name)
        if type(value) is not str or not value:
            return FieldFault(name, _expected("a non-empty text", row, name))
    shard = row["shard"]
    if shard not in good_shards:
        if why := relative_key_fault(shard):
            return FieldFault("shard", f"{shard!r} is no relative key: {why}", "path")
        good_shards.add(shard)
    if "epoch_repeats" in row:
        repeats = row["epoch_repeats"]
        if type(repeats) is not int or repeats < 1:
            return FieldFault(
                "epoch_repeats", _expected("a whole number of at least 1", row, "epoch_repeats")
            )
    for name in MEMBER_FIELDS:
        value = row.get(name)
        if value is None:
            continue
        if type(value) is not str:
            return FieldFault(name, _expected("a text", row, name))
        if why := relative_key_fault(value):
            return FieldFault(name, f"{value!r} is no relative key: {why}", "path")
    for name in _COUNT_FIELDS:
        value = row.get(name)
        if value is not None and (type(value) is not int or value < 0):
            return FieldFault(name, _expected("a whole number of at least 0", row, name))
    for name in _TEXT_FIELDS:
        value = row.get(name)
        if value is not None and type(value) is not str:
            return FieldFault(name, _expected("a text", row, name))
    fps = row.get("fps")
    if fps is not None and (type(fps) not in (int, float) or not 0 <= fps < 1e6):
        return FieldFault("fps", _expected("a finite number of at least 0", row, "fps"))
    return _identity_fault(row) or _nested_fault(row)


def shard_identity(row: Mapping[str, Any]) -> tuple[object, ...]:
    """(generation, size, md5, digest) of the row's shard; equal on every row of that shard."""
    size = row.get("shard_size")
    return (
        row.get("shard_generation") or None,
        int(size) if size else None,
        row.get("shard_md5_b64") or None,
        row.get("shard_digest") or None,
    )


def typed_row(row: dict[str, Any], ordinal: int) -> Row:
    """The typed value of a row that `row_fault` has passed."""
    manifest = row.get("manifest")
    video = manifest.get("video") if manifest else None
    video = video if isinstance(video, dict) else {}
    indices = row.get("source_frame_indices")
    size = row.get("shard_size")
    return Row(
        ordinal=ordinal,
        sample_id=row["sample_id"],
        key=row["key"],
        shard=row["shard"],
        epoch_repeats=row.get("epoch_repeats", 1),
        shard_size=int(size) if size is not None else None,
        num_frames=row.get("num_frames") or _count(video.get("num_frames")),
        fps=float(row.get("fps") or _rate(video.get("fps"))),
        start_frame=row.get("start_frame"),
        source_frame_indices=tuple(indices) if indices is not None else None,
        video_member=row.get("video_member"),
        camera_member=row.get("camera_member"),
        intrinsics_member=row.get("intrinsics_member"),
        manifest_member=row.get("manifest_member"),
        manifest=manifest,
        caption=row.get("caption"),
        dataset=row.get("dataset"),
        width=row.get("width"),
        height=row.get("height"),
        extra={name: value for name, value in row.items() if name not in _TYPED},
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _rate(value: object) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 < value < 1e6 else 0.0  # type: ignore[operator]


def _identity_fault(row: Mapping[str, Any]) -> FieldFault | None:
    size = row.get("shard_size")
    if size is None:
        for name in IDENTITY_FIELDS:
            if row.get(name):
                return FieldFault(
                    "shard_size", f"`{name}` is given, so `shard_size` must be given too"
                )
        return None
    whole = type(size) is int or (type(size) is str and _INT_TEXT.match(size) is not None)
    if not whole or int(size) <= 0:
        return FieldFault(
            "shard_size", _expected("a whole number of bytes above 0", row, "shard_size")
        )
    digest = row.get("shard_digest")
    if digest and (type(digest) is not str or not _HEX64.match(digest)):
        return FieldFault(
            "shard_digest", _expected("64 lower-case hex digits", row, "shard_digest")
        )
    md5 = row.get("shard_md5_b64")
    if md5 and not _is_md5(md5):
        return FieldFault("shard_md5_b64", _expected("base64 of 16 bytes", row, "shard_md5_b64"))
    generation = row.get("shard_generation")
    if generation is not None and type(generation) not in (str, int):
        return FieldFault(
            "shard_generation", _expected("a text or whole number", row, "shard_generation")
        )
    return None


def _nested_fault(row: Mapping[str, Any]) -> FieldFault | None:
    manifest = row.get("manifest")
    if manifest is not None and type(manifest) is not dict:
        return FieldFault("manifest", _expected("an object", row, "manifest"))
    indices = row.get("source_frame_indices")
    if indices is None:
        return None
    if type(indices) is not list or not indices or any(type(index) is not int for index in indices):
        return FieldFault(
            "source_frame_indices",
            _expected("a list of whole numbers", row, "source_frame_indices"),
        )
    start = row.get("start_frame")
    first = indices[0]
    if indices != list(range(first, first + len(indices))) or (
        start is not None and first != start
    ):
        return FieldFault(
            "source_frame_indices", f"it must count up by one from start_frame ({start})"
        )
    return None


def _is_md5(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return len(base64.b64decode(value, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _expected(what: str, row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return f"`{name}` is missing; it must be {what}"
    shown = repr(row[name])
    return f"`{name}` must be {what}, not {shown if len(shown) <= 60 else shown[:57] + '...'}"
