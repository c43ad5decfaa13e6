"""Canonical JSON bytes and content digests."""

from __future__ import annotations

import json
from hashlib import blake2b, blake2s
from pathlib import Path
from typing import Protocol

_BLOCK_SIZE = 1 << 20


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def canonical_json(value: object) -> bytes:
    """The one spelling of a JSON value that is hashed: sorted keys, no spaces, no NaN, UTF-8, one
    newline.

    Floats print as Python's `repr`. Raises ValueError on NaN or infinity, TypeError on what JSON
    lacks.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode() + b"\n"


def human_json(value: object) -> bytes:
    """The same value for people to read: sorted keys, two spaces of indent, one newline at the
    end.
    """
    return (
        json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False).encode()
        + b"\n"
    )


def blake2s_hex(data: bytes) -> str:
    """BLAKE2s-256 of `data`, 64 hex digits."""
    return blake2s(data).hexdigest()


def blake2b_hex(data: bytes) -> str:
    """BLAKE2b-256 of `data`, 64 hex digits (what `b2sum -l 256` prints)."""
    return blake2b(data, digest_size=32).hexdigest()


def file_blake2s(path: Path) -> str:
    """BLAKE2s-256 of a file's content, 64 hex digits; reads in blocks of 1 MiB."""
    return _file_digest(path, blake2s())


def file_blake2b(path: Path) -> str:
    """BLAKE2b-256 of a file's content, 64 hex digits; reads in blocks of 1 MiB."""
    return _file_digest(path, blake2b(digest_size=32))


def _file_digest(path: Path, state: _Hash) -> str:
    buffer = memoryview(bytearray(_BLOCK_SIZE))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            state.update(buffer[:count])
    return state.hexdigest()
