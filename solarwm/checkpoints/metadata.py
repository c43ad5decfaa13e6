"""Reading a DCP `.metadata` pickle without running anything it may contain."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, cast

import torch
from torch.distributed.checkpoint.filesystem import (
    _StorageInfo,  # pyright: ignore[reportPrivateUsage]
)
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

from solarwm.errors.types import SolarError

_METADATA_MODULE = "torch.distributed.checkpoint.metadata"
_ALLOWED = frozenset(
    {
        *(
            (_METADATA_MODULE, name)
            for name in (
                "Metadata",
                "MetadataIndex",
                "TensorStorageMetadata",
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
                "TensorProperties",
                "StorageMeta",
                "_MEM_FORMAT_ENCODING",
            )
        ),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("collections", "OrderedDict"),
    }
)
_DTYPES = frozenset(
    name for name in dir(torch) if isinstance(getattr(torch, name, None), torch.dtype)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Where one stored piece of a tensor lies: file name in the member, offset and length in
    bytes.
    """

    file_name: str
    offset: int
    length: int


_REFUSED_CODES = frozenset(
    code[0] for code in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)
)


class _Refused(pickle.UnpicklingError):
    pass


class _MetadataUnpickler(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage]
    """The unpickler written in Python: its memo is a dict, so that no number in the file sizes memory.

    Only the classes of DCP metadata can be named, and classes themselves cannot be changed.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and name in _DTYPES:
            return getattr(torch, name)
        if module in ("pathlib", "pathlib._local") and name in ("PosixPath", "PurePosixPath"):
            return PurePosixPath  # where it was written; opens nothing
        raise _Refused(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("it refers to objects outside the file")

    def load_build(self) -> None:
        stack = cast("list[object]", cast(Any, self).stack)
        if len(stack) < 2 or isinstance(stack[-2], type):
            raise _Refused("it changes a class")
        cast(Any, super()).load_build()

    dispatch: ClassVar[dict[int, Any]] = {
        code: act
        for code, act in cast(Any, pickle)._Unpickler.dispatch.items()
        if code not in _REFUSED_CODES
    } | {pickle.BUILD[0]: load_build}


def parse_metadata(data: bytes, path: Path, *, bytes_too: bool = False) -> Metadata:
    """The DCP metadata in `data`, with nothing but tensors in it; `bytes_too` lets byte items stand
    beside them, which nobody reads.

    Raises `checkpoint.unsafe` (exit 3) when it names any other class, holds byte items or a path
    that leaves the member; `checkpoint.damaged` when it is no such metadata.
    """
    try:
        metadata = _MetadataUnpickler(io.BytesIO(data)).load()
    except _Refused as fault:
        raise unsafe(path, f"The file was not loaded: {fault}.") from fault
    except Exception as fault:
        raise _damaged(path, f"It is not DCP metadata: {type(fault).__name__}.") from fault
    if not isinstance(metadata, Metadata):
        raise _damaged(path, f"It holds a {type(metadata).__name__}, not DCP metadata.")
    try:
        _check_tensors(metadata, path, bytes_too=bytes_too)
        _check_shards(metadata, path)
    except SolarError:
        raise
    except Exception as fault:
        raise _damaged(path, f"A record in it is malformed: {type(fault).__name__}.") from fault
    return metadata


def shards(metadata: Metadata) -> dict[MetadataIndex, Shard]:
    """Where each stored piece lies; `metadata` comes from `parse_metadata`."""
    stored = cast("dict[MetadataIndex, _StorageInfo]", metadata.storage_data)
    return {
        index: Shard(file_name=info.relative_path, offset=info.offset, length=info.length)
        for index, info in stored.items()
    }


def unsafe(path: Path, why: str) -> SolarError:
    """The fault of a checkpoint that holds something other than tensors."""
    return SolarError(
        "checkpoint.unsafe",
        "the checkpoint holds something that is not a tensor",
        where=str(path),
        why=why,
        fixes=["Use a checkpoint from a source you trust, saved by solarwm."],
    )


def _check_tensors(metadata: Metadata, path: Path, *, bytes_too: bool) -> None:
    stored = cast(object, metadata.state_dict_metadata)
    if not isinstance(stored, dict):
        raise _damaged(path, "It lists no tensors.")
    for name, entry in cast("dict[object, object]", stored).items():
        if isinstance(entry, BytesStorageMetadata):
            if bytes_too:
                continue
            raise unsafe(path, f"{name!r} is a byte item; members hold tensors only.")
        if not isinstance(name, str) or not isinstance(entry, TensorStorageMetadata):
            raise _damaged(path, f"The entry {name!r} is not a tensor.")
        dtype: object = getattr(getattr(entry, "properties", None), "dtype", None)
        if not isinstance(dtype, torch.dtype) or not _is_size(getattr(entry, "size", None)):
            raise _damaged(path, f"The entry {name!r} has no dtype or no shape.")


def _check_shards(metadata: Metadata, path: Path) -> None:
    stored: object = metadata.storage_data
    if not isinstance(stored, dict):
        raise _damaged(path, "It says nothing about where tensors lie.")
    for index, info in cast("dict[object, object]", stored).items():
        if not isinstance(index, MetadataIndex) or not isinstance(info, _StorageInfo):
            raise _damaged(path, "A tensor's place is malformed.")
        file_name: object = getattr(info, "relative_path", None)
        plain = isinstance(file_name, str) and PurePosixPath(file_name).parts == (file_name,)
        if not plain or file_name in {"..", "."}:
            raise unsafe(path, f"A tensor's file is {file_name!r}, which is not a plain name.")
        if info.transform_descriptors:
            raise unsafe(path, "A tensor's file asks for a transform; none is supported.")
        for name in ("offset", "length"):
            number: object = getattr(info, name, None)
            if not isinstance(number, int) or number < 0:
                raise _damaged(path, "A tensor's place is not a range of bytes.")


def _is_size(value: object) -> bool:
    return isinstance(value, torch.Size)


def _damaged(path: Path, why: str) -> SolarError:
    return SolarError(
        "checkpoint.damaged", f"the checkpoint is damaged: {path.name}", where=str(path), why=why
    )
