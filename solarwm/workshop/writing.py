"""Writing tensors one at a time: safetensors in one file or in shards with an index, torch files, DCP.

A result takes its place whole or not at all: it is written under a hidden name beside the target, synced,
and renamed; what stood there before goes only then, and only when asked.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solarwm.errors.types import SolarError
from solarwm.storage.durable import (
    fsync_directory,
    make_directories,
    private_sibling,
    storage_errors,
)
from solarwm.storage.space import require_free
from solarwm.workshop.tensors import SAFETENSORS_NAMES, TensorFacts, Tensors

SHARD_BYTES = 5 << 30
CHUNK = 64 << 20
INDEX_NAME = "diffusion_pytorch_model.safetensors.index.json"
FORMATS = ("safetensors", "sharded", "torch", "dcp", "released")

Progress = Callable[[int], object]
"""Bytes written since the last call."""


@contextmanager
def in_place_of(target: Path, *, overwrite: bool, num_bytes: int) -> Iterator[Path]:
    """A hidden path beside `target` to write a file or a directory at; it becomes `target` when the
    block ends well, and is removed when it does not.

    Raises `checkpoint.exists` (exit 5) unless `overwrite` when something stands there, `disk.*`
    (exit 5) when `num_bytes` do not fit.
    """
    if target.exists() and not overwrite:
        raise SolarError(
            "checkpoint.exists",
            "something stands there already",
            where=str(target),
            fixes=["--overwrite replaces it once the new one is complete"],
        )
    make_directories(target.parent)
    require_free(target.parent, num_bytes)
    private = private_sibling(target)
    aside: Path | None = None
    try:
        with storage_errors(target):
            yield private
            _sync(private)
            if target.exists():
                aside = private_sibling(target)
                os.rename(target, aside)
            os.rename(private, target)
            fsync_directory(target.parent)
    except BaseException:
        _remove(private)
        if aside is not None and not target.exists():
            os.rename(aside, target)
        raise
    if aside is not None:
        _remove(aside)


def write(
    tensors: Tensors,
    place: Path,
    *,
    format: str,
    dtype: torch.dtype | None = None,
    metadata: Mapping[str, str] | None = None,
    shard_bytes: int = SHARD_BYTES,
    step: int = 0,
    progress: Progress = lambda count: None,
) -> list[str]:
    """Write all tensors at `place`; floats become `dtype`. Gives the names of the files.

    `safetensors` and `sharded` hold one tensor in memory at a time; the others all of them.
    """
    facts = {name: _as_written(item, dtype) for name, item in tensors.facts.items()}

    def read(name: str) -> Tensor:
        return tensors.read(name).to(facts[name].dtype).contiguous()

    if format == "safetensors":
        _write_file(place, list(facts), facts, read, metadata or {}, progress)
        return [place.name]
    if format == "sharded":
        return _write_shards(place, facts, read, metadata or {}, shard_bytes, progress)
    state = {}
    for name in facts:
        state[name] = read(name)
        progress(facts[name].num_bytes)
    if format == "dcp":
        _write_dcp(place, state)
        return sorted(item.name for item in place.iterdir())
    torch.save({"generator": state, "global_step": step} if format == "released" else state, place)
    return [place.name]


def _write_shards(
    folder: Path,
    facts: Mapping[str, TensorFacts],
    read: Callable[[str], Tensor],
    metadata: Mapping[str, str],
    shard_bytes: int,
    progress: Progress,
) -> list[str]:
    folder.mkdir()
    groups: list[list[str]] = [[]]
    filled = 0
    for name, item in facts.items():
        if groups[-1] and filled + item.num_bytes > shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += item.num_bytes
    stem = INDEX_NAME.removesuffix(".safetensors.index.json")
    if len(groups) == 1:
        names = [f"{stem}.safetensors"]
    else:
        of = f"{len(groups):05d}"
        names = [f"{stem}-{number:05d}-of-{of}.safetensors" for number in range(1, len(groups) + 1)]
    for name, group in zip(names, groups, strict=True):
        _write_file(folder / name, group, facts, read, metadata, progress)
    if len(groups) > 1:
        total = sum(item.num_bytes for item in facts.values())
        places = {n: file for file, group in zip(names, groups, strict=True) for n in group}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / INDEX_NAME).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
        names.append(INDEX_NAME)
    return names


def _write_file(
    path: Path,
    names: Sequence[str],
    facts: Mapping[str, TensorFacts],
    read: Callable[[str], Tensor],
    metadata: Mapping[str, str],
    progress: Progress,
) -> None:
    """The safetensors format: length of the header, header, values; wide types first, as its library
    writes them."""
    ordered = sorted(names, key=lambda name: (-facts[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    begin = 0
    for name in ordered:
        end = begin + facts[name].num_bytes
        header[name] = {
            "dtype": SAFETENSORS_NAMES[facts[name].dtype],
            "shape": list(facts[name].shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            data = memoryview(read(name).reshape(-1).view(torch.uint8).numpy().data)
            for start in range(0, len(data), CHUNK):
                progress(file.write(data[start : start + CHUNK]))


def _write_dcp(folder: Path, state: dict[str, Tensor]) -> None:
    from torch.distributed.checkpoint import FileSystemWriter, save

    folder.mkdir()
    save(state, storage_writer=FileSystemWriter(str(folder), thread_count=1), no_dist=True)


def _as_written(item: TensorFacts, dtype: torch.dtype | None) -> TensorFacts:
    if dtype is None or not item.dtype.is_floating_point or item.dtype.itemsize == 1:
        return item
    return TensorFacts(shape=item.shape, dtype=dtype)


def _sync(place: Path) -> None:
    for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


class Throughput:
    """Bytes and seconds of a piece of work."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._began = time.monotonic()

    def add(self, count: int) -> None:
        """Some more bytes."""
        self.num_bytes += count

    @property
    def per_second(self) -> float:
        """Bytes a second so far."""
        return self.num_bytes / max(1e-6, time.monotonic() - self._began)
