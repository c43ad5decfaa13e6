"""One row of an index: what the fields may hold, and the typed value made of them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
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
TEXT_FIELDS = (
    "caption",
    "dataset",
    "source_sample_id",
    "source_dataset",
    "kept_tier",
    "split",
    "role",
    "recipe_role",
    "window_hash_namespace",
)
COUNT_FIELDS = (
    "num_frames",
    "start_frame",
    "width",
    "height",
    "window_index",
    "window_count",
)
DIGEST_FIELDS = (
    "shard_digest",
    "encoder_contract_digest",
    "tensor_digest",
    "manifest_digest",
    "provenance_digest",
)
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
    """The first thing wrong with a parsed row, or None; `good_shards` remembers keys passed."""
    for name in ("sample_id", "key", "shard"):
        value = row.get(name)
        if type(value) is not str or not value:
            return FieldFault(name, _expected("a non-empty text", row, name))
    shard = row["shard"]
    if shard not in good_shards:
        if why := relative_key_fault(shard):
            return FieldFault("shard", f"{shard!r} is no relative key: {why}", "path")
        good_shards.add(shard)
    for name, value in row.items():
        rule = RULES.get(name)
        if rule is not None and (fault := rule(row, name, value)):
            return fault
    if "shard_size" not in row and any(row.get(name) for name in IDENTITY_FIELDS):
        return FieldFault(
            "shard_size", "the shard is identified, so `shard_size` must be given too"
        )
    return None


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


def _repeats(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if type(value) is not int or value < 1:
        return FieldFault(name, _expected("a whole number of at least 1", row, name))
    return None


def _member(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if type(value) is str:
        if why := relative_key_fault(value):
            return FieldFault(name, f"{value!r} is no relative key: {why}", "path")
    elif value is not None:
        return FieldFault(name, _expected("a text", row, name))
    return None


def _whole(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is not None and (type(value) is not int or value < 0):
        return FieldFault(name, _expected("a whole number of at least 0", row, name))
    return None


def _text(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is not None and type(value) is not str:
        return FieldFault(name, _expected("a text", row, name))
    return None


def _fps(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is not None and (type(value) not in (int, float) or not 0 <= value < 1e6):
        return FieldFault(name, _expected("a finite number of at least 0", row, name))
    return None


def _size(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is None and not any(row.get(other) for other in IDENTITY_FIELDS):
        return None
    whole = type(value) is int or (type(value) is str and _INT_TEXT.match(value) is not None)
    if value is None or not whole or int(value) <= 0:
        return FieldFault(name, _expected("a whole number of bytes above 0", row, name))
    return None


def _digest(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value and (type(value) is not str or not _HEX64.match(value)):
        return FieldFault(name, _expected("64 lower-case hex digits", row, name))
    return None


def _md5(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value and not _is_md5(value):
        return FieldFault(name, _expected("base64 of 16 bytes", row, name))
    return None


def _generation(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is not None and type(value) not in (str, int):
        return FieldFault(name, _expected("a text or whole number", row, name))
    return None


def _manifest(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is not None and type(value) is not dict:
        return FieldFault(name, _expected("an object", row, name))
    return None


def _indices(row: Mapping[str, Any], name: str, value: Any) -> FieldFault | None:
    if value is None:
        return None
    if type(value) is not list or not value or any(type(index) is not int for index in value):
        return FieldFault(name, _expected("a list of whole numbers", row, name))
    start = row.get("start_frame")
    first = value[0]
    counts_up = value == list(range(first, first + len(value)))
    if not counts_up or (start is not None and first != start):
        return FieldFault(name, f"it must count up by one from start_frame ({start})")
    return None


RULES: dict[str, Callable[[Mapping[str, Any], str, Any], FieldFault | None]] = {
    "epoch_repeats": _repeats,
    "shard_size": _size,
    "shard_md5_b64": _md5,
    "shard_generation": _generation,
    "fps": _fps,
    "manifest": _manifest,
    "source_frame_indices": _indices,
    **dict.fromkeys(DIGEST_FIELDS, _digest),
    **dict.fromkeys(MEMBER_FIELDS, _member),
    **dict.fromkeys(COUNT_FIELDS, _whole),
    **dict.fromkeys(TEXT_FIELDS, _text),
}


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
