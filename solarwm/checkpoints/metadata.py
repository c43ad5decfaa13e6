"""Reading a DCP `.metadata` pickle without running anything it may contain."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

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


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) in _ALLOWED:
            return super().find_class(module_name, global_name)
        if module_name == "torch" and global_name in _DTYPES:
            return getattr(torch, global_name)
        raise _Refused(f"it asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("it refers to objects outside the file")


class _Refused(pickle.UnpicklingError):
    pass


def parse_metadata(data: bytes, path: Path) -> Metadata:
    """The DCP metadata in `data`, with nothing but tensors in it.

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
    _check_tensors(metadata, path)
    _check_shards(metadata, path)
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


def _check_tensors(metadata: Metadata, path: Path) -> None:
    stored = cast(object, metadata.state_dict_metadata)
    if not isinstance(stored, dict):
        raise _damaged(path, "It lists no tensors.")
    for name, entry in cast("dict[object, object]", stored).items():
        if isinstance(entry, BytesStorageMetadata):
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
            raise _damaged(path, f"The place {index!r} is malformed.")
        file_name: object = getattr(info, "relative_path", None)
        if not isinstance(file_name, str) or PurePosixPath(file_name).parts != (file_name,):
            raise unsafe(path, f"A tensor's file is {file_name!r}, which is not a plain name.")
        if file_name in {"..", "."}:
            raise unsafe(path, f"A tensor's file is {file_name!r}, which is not a plain name.")
        if info.transform_descriptors:
            raise unsafe(path, "A tensor's file asks for a transform; none is supported.")
        numbers = cast("tuple[object, object]", (info.offset, info.length))
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise _damaged(path, f"The place of {index.fqn!r} is not a range of bytes.")


def _is_size(value: object) -> bool:
    return isinstance(value, torch.Size)


def _damaged(path: Path, why: str) -> SolarError:
    return SolarError(
        "checkpoint.damaged", f"the checkpoint is damaged: {path.name}", where=str(path), why=why
    )
