"""Reading a member into tensors that already have their place, plain or sharded."""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import struct
import zipfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem

from solarwm.checkpoints.manifest import METADATA_NAME, Manifest, check_digest, damaged
from solarwm.checkpoints.metadata import Shard, parse_metadata, shards, unsafe
from solarwm.errors.types import SolarError

_ZIP_HEADER_SIZE = 30


def read_metadata(checkpoint: Path, member: str, manifest: Manifest) -> Metadata:
    """The DCP metadata of one member, proven by digest before it is parsed."""
    path = checkpoint / member / METADATA_NAME
    entry = manifest.file(f"{member}/{METADATA_NAME}")
    if entry is None:
        raise damaged(path, "The manifest does not list it.")
    check_digest(checkpoint, entry)
    return parse_metadata(path.read_bytes(), path)


def read_member(
    checkpoint: Path, member: str, metadata: Metadata, tensors: Mapping[str, Tensor]
) -> None:
    """Fill `tensors` in place from one member; each rank reads only the pieces it holds.

    Names and whole shapes must have been compared before. Values are converted to the dtype of the
    target. No collectives. Raises `checkpoint.damaged` or `checkpoint.unsafe` (exit 3).
    """
    try:
        _read_member(checkpoint, member, metadata, tensors)
    except SolarError:
        raise
    except Exception as fault:
        why = f"Its metadata and its files contradict each other: {type(fault).__name__}."
        raise damaged(checkpoint / member, why) from fault


def _read_member(
    checkpoint: Path, member: str, metadata: Metadata, tensors: Mapping[str, Tensor]
) -> None:
    places = shards(metadata)
    planner = DefaultLoadPlanner()
    cast(Any, planner).set_up_planner(dict(tensors), metadata, False)
    per_file: dict[str, list[tuple[Shard, ReadItem]]] = {}
    for item in planner.create_local_plan().items:
        shard = places.get(item.storage_index)
        if item.type == LoadItemType.BYTE_IO or shard is None:
            raise unsafe(checkpoint / member, f"{item.storage_index.fqn} is not a stored tensor.")
        per_file.setdefault(shard.file_name, []).append((shard, item))
    for file_name, work in per_file.items():
        path = checkpoint / member / file_name
        with _mapped(path) as content:
            for shard, item in sorted(work, key=lambda pair: pair[0].offset):
                _read_item(path, content, shard, item, planner)


def _read_item(
    path: Path, content: memoryview, shard: Shard, item: ReadItem, planner: DefaultLoadPlanner
) -> None:
    if shard.offset + shard.length > content.nbytes:
        raise damaged(path, f"{item.storage_index.fqn} lies beyond the end of the file.")
    target = planner.resolve_tensor(item).detach()
    sizes, dtype = _stored_shape(planner, item)
    if math.prod(sizes) > 0:
        start = shard.offset + _storage_offset(
            path, content[shard.offset : shard.offset + shard.length], item, sizes, dtype
        )
        stored = torch.frombuffer(content, dtype=dtype, count=math.prod(sizes), offset=start)
        source = _narrowed(stored.view(sizes), item)
        if source is None or source.shape != target.shape:
            raise damaged(path, f"{item.storage_index.fqn} has another shape than recorded.")
        target.copy_(source)
    planner.commit_tensor(item, target)


def _stored_shape(planner: DefaultLoadPlanner, item: ReadItem) -> tuple[torch.Size, torch.dtype]:
    """Shape and dtype of the stored piece that `item` reads from, by the member's metadata."""
    metadata = cast(Metadata, planner.metadata)
    entry = cast(TensorStorageMetadata, metadata.state_dict_metadata[item.storage_index.fqn])
    offset = item.storage_index.offset
    for chunk in entry.chunks:
        if offset is None or chunk.offsets == offset:
            return chunk.sizes, entry.properties.dtype
    return torch.Size([0]), entry.properties.dtype


def _storage_offset(
    path: Path, piece: memoryview, item: ReadItem, sizes: torch.Size, dtype: torch.dtype
) -> int:
    """Where the values lie in a saved tensor: the one uncompressed `data/0` record of its zip.

    Nothing in the zip is unpickled: shape and dtype are known, and a save writes tensors
    contiguous.
    """
    name = item.storage_index.fqn
    size = math.prod(sizes) * dtype.itemsize
    with _MemorySlice(piece) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                found = [info for info in archive.infolist() if info.filename.endswith("/data/0")]
        except Exception as fault:
            raise damaged(path, f"{name} cannot be read.") from fault
    if (
        len(found) != 1
        or found[0].compress_type != zipfile.ZIP_STORED
        or found[0].file_size != size
    ):
        raise damaged(path, f"{name} is not stored as {size} plain bytes.")
    header = found[0].header_offset
    if header < 0 or header + _ZIP_HEADER_SIZE > piece.nbytes:
        raise damaged(path, f"{name} lies outside its record.")
    name_size, extra_size = struct.unpack_from("<HH", piece, header + _ZIP_HEADER_SIZE - 4)
    start = header + _ZIP_HEADER_SIZE + name_size + extra_size
    if start + size > piece.nbytes:
        raise damaged(path, f"{name} lies outside its record.")
    return start


def _narrowed(tensor: Tensor, item: ReadItem) -> Tensor | None:
    if tensor.ndim != len(item.lengths):
        return None
    for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        if start + length > tensor.shape[dim]:
            return None
        tensor = tensor.narrow(dim, start, length)
    return tensor


class _MemorySlice(io.RawIOBase):
    """A seekable view of bytes that copies only into the reader's buffer."""

    def __init__(self, view: memoryview) -> None:
        super().__init__()
        self._view = view
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        count = min(target.nbytes, max(0, self._view.nbytes - self._position))
        target[:count] = self._view[self._position : self._position + count]
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._view.nbytes}
        self._position = max(0, start[whence] + offset)
        return self._position

    def tell(self) -> int:
        return self._position


@contextlib.contextmanager
def _mapped(path: Path) -> Generator[memoryview]:
    """The content of a file, mapped privately; it stays mapped while a view of it lives."""
    try:
        with open(path, "rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except (OSError, ValueError) as fault:
        raise damaged(path, f"It cannot be read: {fault}.") from fault
    yield content
