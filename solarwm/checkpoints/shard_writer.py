"""Writing one rank's share of a checkpoint in DCP's own shard format, hashed on the way out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import (
    _StorageInfo,  # pyright: ignore[reportPrivateUsage]
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.serialization import get_crc32_options, set_crc32_options

from solarwm.checkpoints.manifest import FileEntry
from solarwm.errors.types import SolarError
from solarwm.storage.durable import storage_errors
from solarwm.storage.operations import Bytes, FileSystem, WritableFile

_BLOCK_SIZE = 1 << 16
_HANDOVER_SIZE = 1 << 20
_AHEAD_SIZE = 256 << 20
_SPLIT_SIZE = 32 << 20
_ALIGNMENT = 64
_crc_lock = threading.Lock()


class Digest(Protocol):
    """A hash being fed."""

    def update(self, data: Bytes, /) -> None:
        """Hash some more."""
        ...

    def hexdigest(self) -> str:
        """The hash so far, in hex."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """One file that one rank writes: some of a member's tensors."""

    member: str
    file_name: str
    items: list[WriteItem]
    planner: SavePlanner


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReceipt:
    """What was written: DCP's account of where each piece lies, and the file's size and digest."""

    member: str
    results: list[WriteResult]
    file: FileEntry


class Hasher:
    """A thread that hashes buffers in the order given, behind the writer's back.

    At most `_AHEAD_SIZE` bytes wait at a time. A buffer must stay unchanged until it is hashed;
    `keep` is held until then.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "solarwm-digest")
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_size = 0

    def update(self, digest: Digest, data: Bytes, keep: object) -> None:
        """Hash `data` into `digest`: soon, or at once when it is small and nothing waits."""
        size = memoryview(data).nbytes
        while self._waiting and self._waiting[0][0].done():
            self._wait_one()
        if size < _HANDOVER_SIZE and not self._waiting:
            digest.update(data)
            return
        self._waiting.append((self._thread.submit(_update, digest, data, keep), size))
        self._waiting_size += size
        while self._waiting_size > _AHEAD_SIZE:
            self._wait_one()

    def finish(self) -> None:
        """Return when everything is hashed."""
        while self._waiting:
            self._wait_one()

    def close(self) -> None:
        """Give the thread back, hashed or not."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _wait_one(self) -> None:
        done, size = self._waiting.popleft()
        done.result()
        self._waiting_size -= size


class HashedFile:
    """A file for `torch.save`: small writes are gathered, every byte is hashed by `hasher`."""

    def __init__(self, file: WritableFile, hasher: Hasher) -> None:
        self._file = file
        self._hasher = hasher
        self._digest = blake2b(digest_size=32)
        self._pending = bytearray()
        self._tensor: Tensor | None = None
        self._fault: OSError | None = None
        self.size = 0

    def save(self, tensor: Tensor) -> tuple[int, int]:
        """Append one contiguous CPU tensor as `torch.save` does; gives offset and length."""
        self.write(bytes(-self.size % _ALIGNMENT))
        offset = self.size
        self._tensor = tensor
        try:
            torch.save(tensor, cast("IO[bytes]", self))
        except RuntimeError:
            # torch.save hides the error of a failed write behind its own about the position.
            if self._fault is not None:
                raise self._fault from None
            raise
        self._tensor = None
        return offset, self.size - offset

    def write(self, data: Bytes) -> int:
        """Append `data`; gives its size in bytes."""
        size = memoryview(data).nbytes
        self.size += size
        if size < _BLOCK_SIZE:
            self._pending += data
            if len(self._pending) >= _BLOCK_SIZE:
                self._drain()
            return size
        self._drain()
        if not _lies_in(data, self._tensor):
            data = bytes(data)
        self._put(data, self._tensor)
        return size

    def flush(self) -> None:
        """Called by `torch.save` after each tensor; blocks go out when they are full."""

    def finish(self) -> str:
        """Write what is gathered, sync, wait for the hash; gives BLAKE2b-256 in hex."""
        self._drain()
        self._file.fsync()
        self._hasher.finish()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()

    def _drain(self) -> None:
        if self._pending:
            data, self._pending = self._pending, bytearray()
            self._put(data, None)

    def _put(self, data: Bytes, keep: object) -> None:
        self._hasher.update(self._digest, data, keep)
        try:
            self._file.write(data)
        except OSError as fault:
            self._fault = fault
            raise


def shard_tasks(
    member: str, plan: SavePlan, planner: SavePlanner, *, rank_index: int, max_files: int
) -> list[ShardTask]:
    """Deal a rank's tensors of one member into files of nearly equal size, at most `max_files`.

    A rank with nothing to write has no task. Raises `checkpoint.unsafe` for anything but tensors.
    """
    sized = [(_item_size(item), item) for item in plan.items]
    total = sum(size for size, _ in sized)
    num_files = min(len(sized), max_files, max(1, total // _SPLIT_SIZE))
    piles: list[tuple[int, list[WriteItem]]] = [(0, []) for _ in range(num_files)]
    for size, item in sorted(sized, key=lambda pair: -pair[0]):
        smallest = min(range(num_files), key=lambda index: piles[index][0])
        filled, items = piles[smallest]
        piles[smallest] = (filled + size, [*items, item])
    return [
        ShardTask(
            member=member, file_name=f"__{rank_index}_{index}.distcp", items=items, planner=planner
        )
        for index, (_, items) in enumerate(piles)
    ]


def write_shards(
    tasks: Sequence[ShardTask], private: Path, *, num_threads: int, fs: FileSystem
) -> list[ShardReceipt]:
    """Write the files one after another, then sync each; `num_threads` more threads hash meanwhile.

    The stock `FileSystemReader` can read them.
    """
    hashers = [Hasher() for _ in range(min(num_threads, len(tasks)))]
    try:
        with _without_crc(), ExitStack() as opened:
            written: list[tuple[ShardTask, HashedFile, list[WriteResult]]] = []
            for index, task in enumerate(tasks):
                path = private / task.member / task.file_name
                with storage_errors(path):
                    file = HashedFile(fs.create(path), hashers[index % len(hashers)])
                    opened.callback(file.close)
                    written.append((task, file, [_write_item(i, task, file) for i in task.items]))
            return [_receipt(*parts, private) for parts in written]
    finally:
        for hasher in hashers:
            hasher.close()


def tensor_bytes(tensors: Mapping[str, Tensor], *, whole: bool) -> int:
    """Bytes this rank holds of `tensors`: its shards, and the unsharded ones when `whole`."""
    total = 0
    for tensor in tensors.values():
        local = getattr(tensor, "to_local", None)
        if local is not None:
            part = cast(Tensor, local())
            total += part.numel() * part.element_size()
        elif whole:
            total += tensor.numel() * tensor.element_size()
    return total


def _receipt(
    task: ShardTask, file: HashedFile, results: list[WriteResult], private: Path
) -> ShardReceipt:
    path = f"{task.member}/{task.file_name}"
    with storage_errors(private / path):
        digest = file.finish()
        file.close()
    entry = FileEntry(path=path, size=file.size, blake2b=digest)
    return ShardReceipt(member=task.member, results=results, file=entry)


def _write_item(item: WriteItem, task: ShardTask, file: HashedFile) -> WriteResult:
    tensor = cast(Tensor, task.planner.resolve_data(item)).detach().cpu().contiguous()
    if tensor.untyped_storage().size() != tensor.numel() * tensor.element_size():
        tensor = tensor.clone()
    offset, length = file.save(tensor)
    place = _StorageInfo(task.file_name, offset, length)
    return WriteResult(index=item.index, size_in_bytes=length, storage_data=place)


def _update(digest: Digest, data: Bytes, keep: object) -> None:
    digest.update(data)


def _lies_in(data: Bytes, tensor: Tensor | None) -> bool:
    """Whether `data` is part of the tensor's own memory and so lives as long as the tensor."""
    if tensor is None or isinstance(data, bytes | bytearray):
        return isinstance(data, bytes)
    start = np.frombuffer(data, dtype=np.uint8).ctypes.data
    storage = tensor.untyped_storage()
    return (
        storage.data_ptr() <= start and start + data.nbytes <= storage.data_ptr() + storage.nbytes()
    )


def _item_size(item: WriteItem) -> int:
    data = item.tensor_data
    if item.type == WriteItemType.BYTE_IO or data is None:
        raise SolarError(
            "checkpoint.unsafe",
            "only tensors can be saved in a member",
            why=f"{item.index.fqn} is not a tensor.",
        )
    return data.chunk.sizes.numel() * data.properties.dtype.itemsize


@contextmanager
def _without_crc() -> Generator[None]:
    """Zip checksums off: the digest covers every byte. The setting is process-wide."""
    with _crc_lock:
        before = get_crc32_options()
        set_crc32_options(False)
        try:
            yield
        finally:
            set_crc32_options(before)
