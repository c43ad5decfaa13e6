"""Mutated indexes: the digests of the plain way, or a clean refusal with its line and byte."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from hashlib import blake2s
from pathlib import Path
from typing import Any

import pytest

from solarwm.data.digest import IndexReport, inspect_index
from solarwm.data.index import read_index
from solarwm.errors.types import SolarError

WHOLE_FILE = {"index.empty", "index.not-gzip", "index.no-rows"}
NUMBERS = [b"1e5", b"1E400", b"1e-7", b"-0.0", b"123456789012345678901234567890", b"0.1e17", b"007"]
BAD_KEYS = ["../x.tar", "/etc/passwd", "gs://b/x.tar", "a//b", "a/./b", "a\\b", "C:x", "a/", "a\0b"]
BAD_FIELDS: list[tuple[str, Any]] = [
    ("epoch_repeats", 0), ("epoch_repeats", True), ("epoch_repeats", 1.0), ("num_frames", -1),
    ("num_frames", "81"), ("fps", -1), ("fps", [1]), ("fps", 10**400), ("caption", 3),
    ("manifest", []), ("shard_size", 0), ("shard_size", "1e3"), ("sample_id", ""), ("key", None),
    ("shard", 7), ("video_member", {}), ("source_frame_indices", [1, 3]), ("shard_digest", "xyz"),
]  # fmt: skip
GOOD_FIELDS: list[tuple[str, Any]] = [
    ("epoch_repeats", 10**30), ("num_frames", 0), ("fps", 0), ("fps", 29.97), ("caption", None),
    ("caption", "a\u2028b \U0001f600"), ("novel", {"z": [1e-7, {"a": 2**70}]}), ("novel", 1e16),
    ("novel", 1e22), ("novel", [[]]), ("manifest", {"video": {"num_frames": "x"}}),
    ("video_member", "a b/\u00fc.mp4"), ("video_member", None), ("key", "any key: at/all\\"),
]  # fmt: skip

Case = tuple[bytes, set[str] | None]
"""The decompressed file, and the codes that may be told; None when the index is still good."""


def _rows(draw: random.Random) -> list[dict[str, Any]]:
    rows = []
    for number in range(draw.randrange(2, 6)):
        row = {"sample_id": f"s/{number}", "key": f"k{number}", "shard": f"x/{number // 2}.tar"}
        optional = {
            "num_frames": draw.randrange(2_000),
            "fps": draw.choice([16.0, 24, 23.976, 1e-5]),
            "caption": draw.choice(["", "street", "\u8857\u9053", 'a "quoted" \\ word']),
            "video_member": f"k{number}.video.mp4",
            "extra": draw.choice([None, 3, 2**65, 0.1, {"b": 1, "a": [True]}]),
        }
        rows.append(row | {name: optional[name] for name in draw.sample(list(optional), 4)})
    return rows


def _text(rows: list[dict[str, Any]], draw: random.Random) -> bytes:
    form: dict[str, Any] = draw.choice(
        [{}, {"separators": (",", ":"), "sort_keys": True}, {"ensure_ascii": False}]
    )
    return b"".join(json.dumps(row, **form).encode() + b"\n" for row in rows)


def _mutated(draw: random.Random) -> Case:
    rows = _rows(draw)
    at = draw.randrange(len(rows))
    kind = draw.choice(list(_KINDS))
    return _KINDS[kind](rows, at, draw)


def _good_field(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    name, value = draw.choice(GOOD_FIELDS)
    rows[at][name] = value
    return _text(rows, draw), None


def _bad_field(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    name, value = draw.choice(BAD_FIELDS)
    rows[at][name] = value
    return _text(rows, draw), {"index.bad-field"}


def _bad_key(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    rows[at][draw.choice(["shard", "video_member", "camera_member"])] = draw.choice(BAD_KEYS)
    return _text(rows, draw), {"index.bad-path"}


def _twice(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    rows.insert(draw.randrange(len(rows) + 1), dict(rows[at]))
    return _text(rows, draw), {"index.duplicate-id"}


def _drift(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    rows[0]["shard_size"], rows[1]["shard_size"] = 5, draw.choice([6, "7"])
    return _text(rows, draw), {"index.shard-drift"}


def _windows_ends(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    text = _text(rows, draw).replace(b"\n", draw.choice([b"\r\n", b"\n\n", b"\n \t\r\n"]))
    return draw.choice([b"", b"\xef\xbb\xbf"]) + text[: draw.choice([None, -1])], None


def _encoded(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    rows[at]["caption"] = "\u8857\u9053"
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    encoding = draw.choice(["utf-16", "utf-16-le", "utf-16-be", "gbk"])
    return text.encode(encoding), {"index.not-utf8"}


def _number(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    rows[at]["novel"] = "@"
    token = draw.choice(NUMBERS)
    codes = {b"007": {"index.bad-json"}, b"1E400": {"index.no-digest"}}.get(token)
    return _text(rows, draw).replace(b'"@"', token), codes


def _odd_value(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    name = draw.choice(["novel", "sample_id", "key", "caption"])
    rows[at][name] = draw.choice(["\ud800", "a\udfff"])
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows), {"index.no-digest"}


def _not_a_number(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    rows[at]["novel"] = draw.choice([float("nan"), [float("inf")], {"a": -float("inf")}])
    return _text(rows, draw), {"index.no-digest"}


def _nested(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    depth = draw.choice([3, 100, 253, 300, 5_000, 100_000])
    rows[at]["novel"] = "@"
    inner = draw.choice([b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth])
    return _text(rows, draw).replace(b'"@"', inner), None if depth < 500 else {"index.bad-json"}


def _broken(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    lines = _text(rows, draw).splitlines(keepends=True)
    line = lines[at]
    bad = [line[: len(line) // 2] + b"\n", b"[1]\n", b"null\n", b"\0" + line, line[:-2] + b",}\n"]
    lines[at] = draw.choice(bad)
    return b"".join(lines), {"index.bad-json", "index.not-utf8"}


def _repeated_field(rows: list[dict[str, Any]], at: int, draw: random.Random) -> Case:
    lines = _text(rows, draw).splitlines(keepends=True)
    lines[at] = b'{"sample_id": 7, "novel": 1.5, "novel": 2, ' + lines[at][1:]
    return b"".join(lines), None


_KINDS: dict[str, Callable[[list[dict[str, Any]], int, random.Random], Case]] = {
    kind.__name__: kind
    for kind in (
        _good_field, _bad_field, _bad_key, _twice, _drift, _windows_ends, _encoded, _number,
        _odd_value, _not_a_number, _nested, _broken, _repeated_field,
    )
}  # fmt: skip


def _damaged(packed: bytes, draw: random.Random) -> tuple[bytes, bool]:
    """The gzip file, sometimes with damage, and whether that must be found."""
    kind = draw.randrange(8)
    if kind == 0:
        return packed[: draw.randrange(1, len(packed))], True
    if kind == 1:
        return packed[:-8] + bytes(4) + packed[-4:], True
    if kind == 2:
        return packed[:-1] + bytes([packed[-1] ^ 1]), True
    return packed, False


def _inspected(path: Path) -> tuple[IndexReport | None, SolarError | None]:
    try:
        return inspect_index(path), None
    except SolarError as fault:
        return None, fault


def _plain_digests(data: bytes) -> tuple[int, int, str, str, str]:
    rows = [json.loads(t) for t in data.decode("utf-8-sig").split("\n") if t.strip()]
    ids = "".join(row["sample_id"] + "\n" for row in rows)
    form: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    texts = "".join(json.dumps(row, allow_nan=False, **form) + "\n" for row in rows)
    return (
        len(rows),
        sum(row.get("epoch_repeats", 1) for row in rows),
        blake2s(ids.encode()).hexdigest(),
        blake2s(texts.encode()).hexdigest(),
        blake2s(data).hexdigest(),
    )


def _check(folder: Path, count: int, seed: int) -> tuple[int, int]:
    refused = read = 0
    for number in range(count):
        draw = random.Random(f"{seed}|{number}")
        data, codes = _mutated(draw)
        path = folder / "i.jsonl"
        stored, is_cut = data, False
        if draw.random() < 0.4:
            path = folder / "i.jsonl.gz"
            stored, is_cut = _damaged(gzip.compress(data, compresslevel=1, mtime=0), draw)
        path.write_bytes(stored)
        report, fault = _inspected(path)
        if report is None:
            assert fault is not None
            refused += 1
            assert codes or is_cut, (number, fault)
            allowed = (codes or set()) | (
                {"index.truncated", "index.not-gzip"} if is_cut else set()
            )
            assert fault.code in allowed, (number, fault)
            _check_place(fault, path, data, number)
            continue
        read += 1
        assert codes is None, (number, codes)
        assert not is_cut, number
        found = (
            report.rows,
            report.virtual_occurrences,
            report.ordered_sample_id_digest,
            report.ordered_row_digest,
            report.decompressed_digest,
        )
        assert found == _plain_digests(data), number
        assert len(read_index(path)) == report.rows
    return refused, read


def _check_place(fault: SolarError, path: Path, data: bytes, number: int) -> None:
    assert fault.exit_code == 3, (number, fault)
    assert str(path) in (fault.where or ""), (number, fault)
    if fault.code in WHOLE_FILE:
        return
    line, offset = fault.context["line"], fault.context["byte_offset"]
    assert isinstance(line, int), (number, fault)
    assert isinstance(offset, int), (number, fault)
    assert 0 <= offset <= len(data), (number, fault)
    if fault.code in ("index.truncated", "index.not-utf8"):
        return
    bom = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    assert data.count(b"\n", 0, offset) == line - 1, (number, fault)
    assert offset in (0, bom) or data[offset - 1 : offset] == b"\n", (number, fault)


def test_a_thousand_mutated_indexes_digest_the_plain_way_or_are_refused_by_line(
    tmp_path: Path,
) -> None:
    refused, read = _check(tmp_path, 1_000, seed=0)
    assert refused + read == 1_000
    assert min(refused, read) > 200


@pytest.mark.soak
def test_twenty_thousand_mutated_indexes(tmp_path: Path) -> None:
    refused, read = _check(tmp_path, 20_000, seed=1)
    print(f"20,000 mutated indexes: {refused} refused, {read} read")


def test_flipped_bytes_never_change_what_is_read_in_silence(tmp_path: Path) -> None:
    """Every flip is refused, or reads as the standard library reads the flipped file."""
    draw = random.Random(0)
    path = tmp_path / "i.jsonl"
    for number in range(400):
        data = bytearray(_text(_rows(draw), draw))
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        report, fault = _inspected(path)
        if report is None:
            assert fault is not None
            _check_place(fault, path, bytes(data), number)
            continue
        assert report.ordered_row_digest == _plain_digests(bytes(data))[3], number


def test_a_wrong_checksum_in_gzip_is_found_at_the_end(tmp_path: Path) -> None:
    data = _text(_rows(random.Random(3)), random.Random(3))
    packed = gzip.compress(data)
    assert packed[-8:-4] == zlib.crc32(data).to_bytes(4, "little")
    path = tmp_path / "i.jsonl.gz"
    path.write_bytes(packed[:-8] + bytes(4) + packed[-4:])
    with pytest.raises(SolarError) as caught:
        inspect_index(path)
    assert caught.value.code == "index.truncated"
