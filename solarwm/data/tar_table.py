"""Where the members of a plain tar lie: one pass over its headers, everything odd refused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from solarwm.errors.types import SolarError

BLOCK = 512
_REGULAR = frozenset(b"\0" + b"0" + b"7")
_MAX_EXTENSION_SIZE = 1 << 20
_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


class Member(NamedTuple):
    """Offset and size of a member's bytes in the shard."""

    offset: int
    size: int
    is_regular: bool


@dataclass(frozen=True, slots=True)
class _Source:
    """The tar being scanned, with the words for its faults."""

    descriptor: int
    size: int
    shard: str

    def fault(
        self, code: str, headline: str, why: str, offset: int, member: str | None = None
    ) -> SolarError:
        context: dict[str, object] = {"shard": self.shard, "byte_offset": offset}
        if member:
            context["member"] = member
        where = f"{self.shard}:{member}" if member else self.shard
        fixes = ["copy or download the shard again", "solarwm data validate INDEX --root DIR"]
        return SolarError(
            code, headline, where=where, why=f"{why} (byte {offset})", fixes=fixes, context=context
        )


def scan_tar(descriptor: int, shard: str) -> dict[str, Member]:
    """Every member of the tar behind an open descriptor, by its exact name.

    Raises SolarError (exit 3): `shard.empty`, `shard.compressed`, `shard.not-a-tar`,
    `shard.truncated`, `shard.duplicate-member`, `shard.interleaved`.
    """
    source = _Source(descriptor, os.fstat(descriptor).st_size, shard)
    _refuse_foreign(source)
    members: dict[str, Member] = {}
    groups: set[str] = set()
    group: str | None = None
    offset = 0
    long_name: str | None = None
    pax: dict[str, str] = {}
    while True:
        header = os.pread(descriptor, BLOCK, offset)
        if len(header) < BLOCK:
            raise source.fault(
                "shard.truncated",
                "the shard is cut off",
                f"the file ends at {source.size} without the end-of-archive mark",
                offset,
            )
        if not header.strip(b"\0"):
            _refuse_ragged(source)
            return members
        kind = header[156:157]
        size = _checked_size(source, header, offset)
        body = offset + BLOCK
        if kind in (b"x", b"g", b"L", b"K"):
            text = _extension(source, body, size)
            if kind == b"x":
                pax = _pax_records(source, text, offset)
            elif kind == b"L":
                long_name = text.rstrip(b"\0").decode("utf-8", "surrogateescape")
            offset = body + _padded(size)
            continue
        name = pax.get("path") or long_name or _name(header)
        if "size" in pax:
            size = int(pax["size"])
        is_regular = kind[0] in _REGULAR and not any(key.startswith("GNU.sparse.") for key in pax)
        long_name, pax = None, {}
        if body + size > source.size:
            raise source.fault(
                "shard.truncated",
                "the shard is cut off inside a member",
                f"member {name!r} needs bytes {body}..{body + size}, the file has {source.size}",
                body,
                name,
            )
        offset = body + (_padded(size) if kind[0] in _REGULAR else 0)
        if kind == b"5":
            continue
        if name in members:
            raise source.fault(
                "shard.duplicate-member",
                "a member name stands twice in the shard",
                repr(name),
                body,
                name,
            )
        members[name] = Member(body, size, is_regular)
        key = _group(name)
        if key != group:
            if key in groups:
                raise source.fault(
                    "shard.interleaved",
                    "the members of two samples are interleaved",
                    f"key {key!r} comes back after its group ended",
                    body,
                    name,
                )
            groups.add(key)
            group = key


def _refuse_foreign(source: _Source) -> None:
    if source.size == 0:
        raise source.fault("shard.empty", "the shard is empty", "the file has 0 bytes", 0)
    head = os.pread(source.descriptor, BLOCK, 0)
    for magic, name in _COMPRESSED:
        if head.startswith(magic):
            raise source.fault(
                "shard.compressed",
                "the shard is compressed",
                f"it is a {name} file; shards are plain tar",
                0,
            )
    text = head.lstrip()[:15].lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise source.fault(
            "shard.not-a-tar",
            "the shard is a web page, not a tar",
            f"it starts with {head.lstrip()[:24].decode('ascii', 'replace')!r}; "
            "the download returned an error page",
            0,
        )


def _refuse_ragged(source: _Source) -> None:
    if source.size % BLOCK:
        raise source.fault(
            "shard.truncated",
            "the shard is cut off in its end-of-archive padding",
            f"{source.size} bytes are no whole number of {BLOCK}-byte blocks",
            source.size,
        )


def _checked_size(source: _Source, header: bytes, offset: int) -> int:
    fields = header[:148] + b" " * 8 + header[156:]
    expected = _number(header[148:156])
    size = _number(header[124:136])
    if expected is None or size is None or expected not in (sum(fields), _signed_sum(fields)):
        raise source.fault(
            "shard.not-a-tar",
            "the shard is no tar, or is damaged" if offset == 0 else "a tar header is damaged",
            "the header checksum is wrong",
            offset,
        )
    return size


def _signed_sum(data: bytes) -> int:
    return sum(byte - 256 if byte > 127 else byte for byte in data)


def _number(field: bytes) -> int | None:
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0") or b"0"
    return int(digits, 8) if not digits.strip(b"01234567") else None


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _extension(source: _Source, body: int, size: int) -> bytes:
    if size > _MAX_EXTENSION_SIZE or body + size > source.size:
        raise source.fault(
            "shard.truncated",
            "a tar extension header is cut off or absurd",
            f"it claims {size} bytes",
            body,
        )
    return os.pread(source.descriptor, size, body)


def _pax_records(source: _Source, text: bytes, offset: int) -> dict[str, str]:
    records: dict[str, str] = {}
    try:
        while text:
            length = int(text.split(b" ", 1)[0])
            record, text = text[:length], text[length:]
            name, value = record.split(b" ", 1)[1].removesuffix(b"\n").split(b"=", 1)
            records[name.decode()] = value.decode("utf-8", "surrogateescape")
            if length <= 0:
                raise ValueError
        if "size" in records and int(records["size"]) < 0:
            raise ValueError
    except (ValueError, IndexError):
        raise source.fault(
            "shard.not-a-tar",
            "a tar extension header is damaged",
            "its records do not parse",
            offset,
        ) from None
    return records


def _group(name: str) -> str:
    """The sample key of a member by the WebDataset rule: everything before the first dot of its
    file name.
    """
    directory, slash, base = name.rpartition("/")
    return directory + slash + base.split(".", 1)[0]
