"""The lines of an index file with their byte offsets, decompressed on the fly, encoding faults
named.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from solarwm.errors.types import SolarError

CHUNK_SIZE = 1 << 20
MAX_LINE_SIZE = 64 << 20
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def iterate_lines(
    path: Path, *, tap: Callable[[bytes], object] | None = None
) -> Iterator[tuple[int, int, bytes]]:
    """(line number from 1, byte offset in the decompressed file, line without its end) of every
    non-blank line.

    A UTF-8 byte order mark and CRLF ends are taken off. `tap` sees every decompressed byte once, in
    order. Raises SolarError `index.*` (exit 3) for a missing, empty, truncated, non-gzip or
    non-UTF-8 file.
    """
    rest = b""
    offset = 0
    number = 0
    chunks = _chunks(path)
    while chunk := _next(chunks, number, offset):
        if offset == 0 and number == 0 and not rest:
            _refuse_other_encoding(path, chunk)
        if tap:
            tap(chunk)
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > MAX_LINE_SIZE:
                raise SolarError(
                    "index.bad-json",
                    f"line {number + 1} is longer than {MAX_LINE_SIZE >> 20} MiB",
                    where=f"{path}:{number + 1}",
                    why="an index holds one small JSON object a line",
                    context={"line": number + 1, "byte_offset": offset},
                )
            continue
        block, _, rest = rest.rpartition(b"\n")
        _check_utf8(path, block, offset, number)
        for line in block.split(b"\n"):
            number += 1
            start, text = _stripped(line, offset)
            if text:
                yield number, start, text
            offset += len(line) + 1
    if rest:
        _check_utf8(path, rest, offset, number)
        start, text = _stripped(rest, offset)
        if text:
            yield number + 1, start, text


def _next(chunks: Iterator[bytes], number: int, offset: int) -> bytes:
    try:
        return next(chunks, b"")
    except SolarError as fault:
        if fault.code == "index.truncated":
            fault.context.update(line=number + 1, line_offset=offset)
        raise


def _stripped(line: bytes, offset: int) -> tuple[int, bytes]:
    if offset == 0 and line.startswith(_BOM):
        return len(_BOM), line[len(_BOM) :].strip()
    return offset, line.strip()


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            head = raw.read(2)
            if not head:
                raise SolarError(
                    "index.empty",
                    "the index is empty",
                    where=str(path),
                    why="the file has 0 bytes",
                    fixes=["write the index again, for example: solarwm data synthesize --out DIR"],
                )
            raw.seek(0)
            if path.suffix != ".gz":
                if head == b"\x1f\x8b":
                    raise SolarError(
                        "index.not-gzip",
                        "the index is gzip but its name does not end in .gz",
                        where=str(path),
                        fixes=[f"mv {path} {path}.gz"],
                    )
                yield from _blocks(raw)
                return
            if head != b"\x1f\x8b":
                raise SolarError(
                    "index.not-gzip",
                    "the index is named .gz but is no gzip file",
                    where=str(path),
                    why=f"it starts with bytes {head.hex()} instead of 1f8b",
                    fixes=["rename it without .gz if it is plain JSONL"],
                )
            yield from _gunzipped(path, raw)
    except FileNotFoundError:
        raise SolarError(
            "index.missing",
            "the index file does not exist",
            where=str(path),
            fixes=["check data.index_root and the index key", "solarwm data synthesize --out DIR"],
        ) from None
    except OSError as error:
        raise SolarError(
            "index.unreadable",
            "the index cannot be read",
            where=str(path),
            why=error.strerror or str(error),
        ) from error


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(CHUNK_SIZE):
        yield block


def _gunzipped(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    module, failures = _gzip_module()
    done = 0
    try:
        with module.open(raw, "rb") as stream:
            for block in _blocks(stream):
                done += len(block)
                yield block
    except failures as error:
        raise SolarError(
            "index.truncated",
            "the gzip index is cut off or damaged",
            where=str(path),
            why=f"{error or type(error).__name__}; {done} decompressed bytes were readable",
            fixes=["copy or download the index again", f"gzip -t {path}"],
            context={"byte_offset": done},
        ) from None


def _gzip_module() -> tuple[Any, tuple[type[BaseException], ...]]:
    import gzip

    failures: tuple[type[BaseException], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    try:
        from isal import igzip, isal_zlib
    except ImportError:
        return gzip, failures
    broken: Any = isal_zlib.error
    return igzip, (*failures, broken)


def _refuse_other_encoding(path: Path, head: bytes) -> None:
    if head[:2] in _UTF16 or b"\x00" in head[:64]:
        position = 0 if head[:2] in _UTF16 else head.index(b"\x00")
        raise SolarError(
            "index.not-utf8",
            "the index is not UTF-8; it looks like UTF-16",
            where=str(path),
            why=f"byte {head[position]:#04x} at offset {position}",
            fixes=[f"iconv -f UTF-16 -t UTF-8 {path.name} > index.jsonl"],
            context={"byte_offset": position, "line": 1},
        )


def _check_utf8(path: Path, block: bytes, offset: int, lines_before: int) -> None:
    if block.isascii():
        return
    try:
        block.decode()
    except UnicodeDecodeError as error:
        line = lines_before + block.count(b"\n", 0, error.start) + 1
        guess = "" if not _is_gbk(block) else "; the bytes read as GBK"
        raise SolarError(
            "index.not-utf8",
            "the index is not UTF-8",
            where=f"{path}:{line}",
            why=f"byte {block[error.start]:#04x} at offset {offset + error.start}{guess}",
            fixes=[f"iconv -f GBK -t UTF-8 {path.name} > index.jsonl"] if guess else [],
            context={"byte_offset": offset + error.start, "line": line},
        ) from None


def _is_gbk(block: bytes) -> bool:
    try:
        block.decode("gbk")
    except UnicodeDecodeError:
        return False
    return True
