"""Mutated shards: the bytes that were written, or a clean refusal that names the shard."""

from __future__ import annotations

import io
import os
import random
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError

FIELDS = {"name": (0, 100), "mode": (100, 8), "size": (124, 12), "sum": (148, 8), "kind": (156, 1)}
KINDS = b"012345678SLKxgVMDN\0\xff"


def _members(draw: random.Random) -> dict[str, bytes]:
    return {
        f"{clip}.{suffix}": draw.randbytes(draw.choice([0, 1, 511, 512, 513, 2_000]))
        for clip in range(3)
        for suffix in ("video.mp4", "camera.npz")
    }


def _tar(members: dict[str, bytes], draw: random.Random) -> bytearray:
    buffer = io.BytesIO()
    form = draw.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return bytearray(buffer.getvalue())


def _with_sum(data: bytearray, at: int) -> None:
    header = data[at : at + 148] + b" " * 8 + data[at + 156 : at + 512]
    data[at + 148 : at + 156] = b"%06o\0 " % sum(header)


def _headers(data: bytearray) -> list[int]:
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as archive:
        return [info.offset for info in archive.getmembers()]


def _mutated(data: bytearray, draw: random.Random) -> tuple[bytearray, bool]:
    """The shard after one change, and whether a member's bytes may rightly differ afterwards."""
    heads = _headers(data)
    at = draw.choice(heads)
    kind = draw.randrange(7)
    if kind == 0:
        return data[: draw.randrange(len(data))], False
    if kind == 1:
        place = draw.randrange(len(data))
        data[place] ^= 1 << draw.randrange(8)
        return data, True
    if kind == 2:
        start, length = FIELDS[draw.choice(list(FIELDS))]
        data[at + start : at + start + length] = draw.randbytes(length)
        return data, True
    if kind == 3:
        data[at + 156] = draw.choice(KINDS)
        _with_sum(data, at)
        return data, True
    if kind == 4:
        size = draw.choice(
            [b"77777777777\0", b"-0000000001\0", b"\x80" + b"\xff" * 11, b"00000001000\0"]
        )
        data[at + 124 : at + 136] = size
        _with_sum(data, at)
        return data, True
    if kind == 5:
        name = draw.choice([b"../../etc/passwd", b"/etc/passwd", b"0.video.mp4", b"", b"\xff\xfe"])
        data[at : at + 100] = name.ljust(100, b"\0")
        _with_sum(data, at)
        return data, True
    other = draw.choice(heads)
    data[at : at + 512], data[other : other + 512] = data[other : other + 512], data[at : at + 512]
    return data, True


def _attempt(call: Callable[..., Any], *args: str) -> tuple[Any, SolarError | None]:
    try:
        return call(*args), None
    except SolarError as fault:
        return None, fault


def _check(root: Path, count: int, seed: int) -> tuple[int, int]:
    refused = read = 0
    path = root / "a.tar"
    for number in range(count):
        draw = random.Random(f"{seed}|{number}")
        members = _members(draw)
        data, free = _mutated(_tar(members, draw), draw)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(number, number))
        with ShardReader(root) as reader:
            table, fault = _attempt(reader.members, "a.tar")
            if fault is not None:
                assert fault.exit_code == 3, (number, fault)
                assert "a.tar" in (fault.where or ""), number
                refused += 1
                continue
            read += 1
            assert free or set(table) <= set(members), number
            for name, place in table.items():
                assert 0 <= place.offset <= place.offset + place.size <= len(data), number
                found, fault = _attempt(reader.read, "a.tar", name)
                if fault is not None:
                    assert fault.code == "shard.not-a-file", (number, fault)
                    continue
                assert found == bytes(data[place.offset : place.offset + place.size]), number
    assert not [item for item in root.iterdir() if item != path]
    return refused, read


def test_a_thousand_mutated_shards_are_read_rightly_or_refused_by_name(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, read = _check(tmp_path, 1_000, seed=0)
    assert refused + read == 1_000
    assert min(refused, read) > 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.soak
def test_ten_thousand_mutated_shards(tmp_path: Path) -> None:
    refused, read = _check(tmp_path, 10_000, seed=1)
    print(f"10,000 mutated shards: {refused} refused, {read} read")
