from __future__ import annotations

import itertools
import math
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solarwm.data.packing import (
    PackedSample,
    index_bytes,
    npy_bytes,
    npz_bytes,
    pack,
    shard_identity,
)
from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import make_directories, write_bytes_atomic
from solarwm.synthetic.clips import SCENE_NAMES, plan_clip
from solarwm.synthetic.records import DATASET, TIER, ClipOrder, manifest_of, row_of
from solarwm.synthetic.renderer import FIXED_LENS, Lens, render
from solarwm.synthetic.video import encode_mp4

CLIPS_PER_SHARD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisReport:
    """What `synthesize` wrote. Shards are relative to the folder; `num_bytes` counts all files."""

    num_train: int
    num_test: int
    train_index: Path
    test_index: Path
    shards: tuple[str, ...]
    num_bytes: int


def synthesize(
    out: Path,
    *,
    clips: int,
    frames: int,
    height: int,
    width: int,
    seed: int,
    fps: float = 16.0,
    workers: int = 1,
    scene: str = "room",
    lens: Lens = FIXED_LENS,
    progress: Callable[[int, int], None] | None = None,
) -> SynthesisReport:
    """Film `clips` clips of the local world into raw shards and their train and test indexes.

    A quarter of the clips (one at least) is for testing. The bytes depend on the arguments but not
    on `workers`, the number of processes. `progress` is told (clips done, clips). The indexes are
    written last, so a folder with both is whole.

    Raises FileExistsError when `out` already holds an index, ValueError for impossible sizes or an
    unknown scene.
    """
    _check(clips=clips, frames=frames, height=height, width=width, fps=fps, scene=scene)
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    indexes = {split: out / f"{split}-index.jsonl.gz" for split in ("train", "test")}
    for path in indexes.values():
        if path.exists():
            raise FileExistsError(f"{path} exists; choose an empty folder")

    num_test = max(1, clips // 4)
    sizes = {"train": clips - num_test, "test": num_test}
    orders = [
        ClipOrder(
            scene=scene,
            seed=seed,
            split=split,
            index=index,
            frames=frames,
            height=height,
            width=width,
            fps=float(fps),
            lens=lens,
        )
        for split, size in sizes.items()
        for index in range(size)
    ]
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    shards: list[str] = []
    num_bytes = 0
    samples = _counted(_film_all(orders, workers), clips, progress)
    for group in _groups(samples):
        name = f"raw-wds/{DATASET}/shards/kept-{TIER}-{len(shards):06d}.tar"
        shard = pack(group)
        _publish(out / name, shard)
        identity = shard_identity(name, shard)
        for sample in group:
            rows[sample.row["split"]].append({**sample.row, **identity})
        shards.append(name)
        num_bytes += len(shard)
    for split, path in indexes.items():
        data = index_bytes(rows[split])
        _publish(path, data)
        num_bytes += len(data)
    return SynthesisReport(
        num_train=sizes["train"],
        num_test=num_test,
        train_index=indexes["train"],
        test_index=indexes["test"],
        shards=tuple(shards),
        num_bytes=num_bytes,
    )


def _check(*, clips: int, frames: int, height: int, width: int, fps: float, scene: str) -> None:
    if clips < 2:
        raise ValueError(f"clips must be at least 2 (one to train, one to test), got {clips}")
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    for name, size in (("height", height), ("width", width)):
        if size < 16 or size % 2:
            raise ValueError(f"{name} must be even and at least 16, got {size}")
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps must be positive, got {fps}")
    if scene not in SCENE_NAMES:
        raise ValueError(f"scene must be one of {', '.join(SCENE_NAMES)}, got {scene!r}")


def _film_all(orders: list[ClipOrder], workers: int) -> Iterator[PackedSample]:
    if workers == 1:
        yield from map(_film, orders)
        return
    # Spawned, since a fork of a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(orders)), mp_context=context) as pool:
        yield from pool.map(_film, orders)


def _counted(
    samples: Iterator[PackedSample], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[PackedSample]:
    for done, sample in enumerate(samples, start=1):
        if progress is not None:
            progress(done, total)
        yield sample


def _groups(samples: Iterator[PackedSample]) -> Iterator[list[PackedSample]]:
    """Samples of one shard each; no shard holds both splits."""
    for _, of_split in itertools.groupby(samples, key=lambda sample: sample.row["split"]):
        while group := list(itertools.islice(of_split, CLIPS_PER_SHARD)):
            yield group


def _film(order: ClipOrder) -> PackedSample:
    clip = plan_clip(
        order.scene,
        seed=order.seed,
        split=order.split,
        index=order.index,
        frames=order.frames,
        lens=order.lens,
    )
    pixels = render(
        clip.scene, clip.path.c2w, lens=order.lens, height=order.height, width=order.width
    )
    k = order.lens.matrix(order.height, order.width)
    intrinsics = np.tile([k[0, 0], k[1, 1], k[0, 2], k[1, 2]], (order.frames, 1))
    members = {
        "video.mp4": encode_mp4(pixels, fps=order.fps),
        "camera.npz": npz_bytes(c2w=clip.path.c2w),
        "intrinsics.npy": npy_bytes(intrinsics),
        "manifest.json": canonical_json(manifest_of(clip, order)),
    }
    return PackedSample(members=members, row=row_of(clip, order))


def _publish(path: Path, data: bytes) -> None:
    make_directories(path.parent)
    write_bytes_atomic(path, data)
