"""The same samples through webdataset and mosaicml-streaming. Neither is installed with the project; a
row whose library cannot be imported is left out, and the reason printed.

webdataset reads the shards in stored order. MDS needs its own copy of the samples and is read shuffled,
two workers, as ours is with two threads.
"""

from __future__ import annotations

import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data_reads import SIZES, write_shards
from benchmarks.ratio import Ratio, measure
from solarwm.data.shards import ShardReader

Names = list[tuple[str, str]]


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """What of the two can be measured here."""
    shards, samples = (6, 60) if quick else (24, 200)
    found: list[Ratio] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        names = write_shards(root, shards, samples)
        for make in (_webdataset, _streaming):
            try:
                found += make(root, names, rounds=min(rounds, 5))
            except ImportError as error:
                print(f"{make.__name__.strip('_')} is left out: {error}")
    return found


def _webdataset(root: Path, names: Names, *, rounds: int) -> list[Ratio]:
    import webdataset  # type: ignore[import-not-found]

    paths = sorted(map(str, root.glob("*.tar")))

    def theirs() -> int:
        samples = webdataset.WebDataset(paths, shardshuffle=False)
        return sum(len(value) for sample in samples for value in _bytes_of(sample))

    def ours() -> int:
        with ShardReader(root) as reader:
            return sum(len(value) for name in names for value in _sample(reader, name).values())

    if ours() != theirs():
        raise RuntimeError("webdataset gives other bytes")
    return [
        measure(
            "all samples in stored order, as dicts",
            ours,
            theirs,
            anchor_name="webdataset",
            target=0.33,
            rounds=rounds,
        )
    ]


def _streaming(root: Path, names: Names, *, rounds: int) -> list[Ratio]:
    try:
        from streaming import MDSWriter, StreamingDataset  # type: ignore[import-not-found]
    except RuntimeError as error:  # its torchvision may be of another torch
        raise ImportError(str(error)) from None
    from torch.utils.data import DataLoader

    copy = root / "mds"
    with ShardReader(root) as reader, MDSWriter(out=str(copy), columns=_columns()) as writer:
        for name in names:
            sample = _sample(reader, name)
            writer.write({suffix.replace(".", "_"): data for suffix, data in sample.items()})
    mixed = random.Random(0).sample(names, len(names))

    def theirs(most: int | None = None) -> int:
        samples = StreamingDataset(local=str(copy), shuffle=True, batch_size=8)
        total = 0
        loader = DataLoader(samples, batch_size=8, num_workers=2, collate_fn=_as_is)
        for number, batch in enumerate(loader):
            total += sum(len(value) for sample in batch for value in sample.values())
            if number + 1 == most:
                break
        return total

    def ours(most: int | None = None) -> int:
        taken = mixed[: most * 8] if most else mixed
        with ShardReader(root) as reader, ThreadPoolExecutor(2) as pool:
            samples = pool.map(partial(_sample, reader), taken)
            return sum(len(value) for sample in samples for value in sample.values())

    if ours() != theirs():
        raise RuntimeError("mosaicml-streaming gives other bytes")
    name = "mosaicml-streaming, its own copy"
    return [
        measure(
            "all samples shuffled, two workers",
            ours,
            theirs,
            anchor_name=name,
            target=0.83,
            rounds=rounds,
        ),
        measure(
            "the first batch of 8",
            lambda: ours(1),
            lambda: theirs(1),
            anchor_name=name,
            target=0.5,
            rounds=rounds,
        ),
    ]


def _sample(reader: ShardReader, name: tuple[str, str]) -> dict[str, bytes]:
    shard, key = name
    return {suffix: bytes(reader.read(shard, f"{key}.{suffix}")) for suffix in SIZES}


def _bytes_of(sample: dict[str, Any]) -> list[bytes]:
    return [value for key, value in sample.items() if not key.startswith("__")]


def _columns() -> dict[str, str]:
    return {suffix.replace(".", "_"): "bytes" for suffix in SIZES}


def _as_is(samples: list[Any]) -> list[Any]:
    return samples
