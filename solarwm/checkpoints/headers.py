"""What a weight file says of itself, read without torch and without its values: names, shapes, types.

Pickles of torch files and DCP metadata are not executed: every class in them becomes an inert record, and
nothing but the few constructors of tensors is understood. At most `MOST_BYTES` are read of a torch file or
of DCP metadata, of safetensors their header.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from solarwm.errors.types import SolarError

MOST_BYTES = 64 << 20
METADATA_NAME = ".metadata"
TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Types by their names in a safetensors header."""
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}


@dataclass(frozen=True, slots=True)
class Header:
    """One tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeaders:
    """The tensors of a file or folder; `sets` names the dicts a torch file keeps them in."""

    path: Path
    kind: str
    """`safetensors`, `torch` or `dcp`."""
    tensors: tuple[Header, ...]
    metadata: Mapping[str, Any]
    others: tuple[str, ...] = ()
    """Entries that are no tensors."""


def read_headers(path: Path) -> FileHeaders:
    """The headers of a safetensors file, a folder of them (or its index), a torch file, or a DCP folder.

    Raises `weights.missing` or `weights.unreadable` (exit 3).
    """
    if path.is_dir() and (path / METADATA_NAME).is_file():
        return _dcp(path)
    if path.is_dir():
        files = sorted(path.glob("*.safetensors")) or sorted(path.glob("transformer/*.safetensors"))
        if files:
            return _safetensors(path, files)
        if (path / "model.pt").is_file():
            return read_headers(path / "model.pt")
        raise SolarError(
            "weights.missing",
            "there are no weights there",
            where=str(path),
            why="neither *.safetensors nor model.pt nor DCP metadata",
        )
    if not path.is_file():
        raise SolarError("weights.missing", "there is nothing there", where=str(path))
    if path.name.endswith(".index.json"):
        return _safetensors(path, sorted(path.parent.glob("*.safetensors")))
    if path.suffix == ".safetensors":
        return _safetensors(path, [path])
    return _torch(path)


def _safetensors(path: Path, files: list[Path]) -> FileHeaders:
    tensors: list[Header] = []
    metadata: dict[str, Any] = {}
    for file in files:
        with file.open("rb") as stream:
            size = file.stat().st_size
            (length,) = struct.unpack("<Q", stream.read(8).ljust(8, b"\xff"))
            if length > min(size - 8, MOST_BYTES):
                raise unreadable(file, f"its header would be {length} bytes of {size}")
            try:
                header: dict[str, Any] = json.loads(stream.read(length))
                metadata |= header.pop("__metadata__", None) or {}
                found = [
                    Header(name, tuple(map(int, entry["shape"])), TYPES.get(entry["dtype"], "?"))
                    for name, entry in header.items()
                ]
                ends = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                raise unreadable(file, f"its header cannot be read: {error}") from None
        if ends > size - 8 - length:
            raise unreadable(file, f"it ends {ends - (size - 8 - length)} bytes too early")
        tensors += found
    return FileHeaders(path=path, kind="safetensors", tensors=tuple(tensors), metadata=metadata)


def _torch(path: Path) -> FileHeaders:
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > MOST_BYTES:
                raise unreadable(path, "its list of tensors is too long")
            document = _inert(archive.read(name))
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise unreadable(path, f"it is no torch file of this age: {error}") from None
    tensors: list[Header] = []
    others: list[str] = []
    plain: dict[str, Any] = {}
    _collect(document, "", tensors, others, plain)
    return FileHeaders(
        path=path, kind="torch", tensors=tuple(tensors), metadata=plain, others=tuple(others)
    )


def _collect(
    value: Any, prefix: str, tensors: list[Header], others: list[str], plain: dict[str, Any]
) -> None:
    if not isinstance(value, dict):
        others.append(prefix.removesuffix("/") or "(the whole file)")
        return
    for name, item in cast("dict[object, Any]", value).items():
        if isinstance(item, _Tensor):
            tensors.append(Header(f"{prefix}{name}", item.shape, item.dtype))
        elif any(isinstance(inner, _Tensor) for inner in _values(item)):
            _collect(item, f"{prefix}{name}/", tensors, others, plain)
        elif isinstance(item, (str, int, float, bool, dict, list)) and not prefix:
            plain[str(name)] = item
        else:
            others.append(f"{prefix}{name}")


def _values(item: object) -> list[Any]:
    return list(cast("dict[object, Any]", item).values()) if isinstance(item, dict) else []


def _dcp(path: Path) -> FileHeaders:
    place = path / METADATA_NAME
    if place.stat().st_size > MOST_BYTES:
        raise unreadable(place, "it is too long")
    try:
        found = _inert(place.read_bytes())
        entries: dict[str, Any] = found.state["state_dict_metadata"]
        tensors: list[Header] = []
        others: list[str] = []
        for name, entry in entries.items():
            state: dict[str, Any] = entry.state
            if "size" in state and "properties" in state:
                dtype = _dtype_of(state["properties"])
                tensors.append(Header(str(name), tuple(state["size"]), dtype))
            else:
                others.append(str(name))
    except SolarError:
        raise
    except Exception as error:
        raise unreadable(place, f"it is no DCP metadata: {type(error).__name__}") from None
    return FileHeaders(
        path=path, kind="dcp", tensors=tuple(tensors), metadata={}, others=tuple(others)
    )


def _dtype_of(properties: Any) -> str:
    state: Any = properties.state
    first: Any = cast("Any", state[0] if isinstance(state, tuple) else state.get("dtype"))
    return str(getattr(first, "name", "?"))


@dataclass
class _Tensor:
    shape: tuple[int, ...]
    dtype: str


class _Record:
    """Whatever a pickle asks to build: it keeps what it is given and does nothing."""

    def __init__(self, name: str, *given: Any) -> None:
        self.name = name
        self.given = given
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _rebuilt(storage: object, offset: object, size: tuple[int, ...], *_: object) -> _Tensor:
    del offset
    return _Tensor(tuple(size), str(storage))


def _parameter(data: object, *_: object) -> object:
    return data


_SIZED = frozenset(
    code[0] for code in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)
)
"""Codes whose memory a number in the file would decide."""


class _Unpickler(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage]
    """Python's own unpickler, in Python: its memo is a dict, so that no number in a file sizes memory."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: act
        for code, act in cast("Any", pickle)._Unpickler.dispatch.items()
        if code not in _SIZED
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name == "Size":
            return tuple
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return _rebuilt
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _parameter
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name[:1].islower():
            return _Record(name)
        return _maker(name)

    def persistent_load(self, pid: Any) -> object:
        parts = cast("tuple[object, ...]", pid) if isinstance(pid, tuple) else ()
        return parts[1] if len(parts) > 1 else "?"


def _maker(name: str) -> Callable[..., _Record]:
    class Inert(_Record):
        def __init__(self, *given: Any) -> None:
            super().__init__(name, *given)

    return Inert


def _inert(data: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def unreadable(path: Path, why: str) -> SolarError:
    """The fault of a file that is no weight file of a known kind."""
    return SolarError(
        "weights.unreadable", f"{path.name} cannot be read as weights", where=str(path), why=why
    )
