"""Samples out of tar shards: offsets against open `tarfile` objects, decoding against plain PyAV."""

from __future__ import annotations

import io
import random
import tarfile
import tempfile
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.ratio import Ratio, measure
from solarwm.data.shards import ShardReader
from solarwm.data.video import decode_frames

SIZES = {"latent.bin": 100_000, "camera.npz": 4_000, "manifest.json": 600}
_OPEN = 4


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """Random reads of whole samples, sequential reads, and decoding with one and two threads."""
    shards, samples = (6, 60) if quick else (24, 200)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        names = write_shards(root, shards, samples)
        order = random.Random(0).sample(names, min(600, len(names)))
        found = [
            measure(
                "600 samples in random order",
                lambda: _by_offset(root, order),
                lambda: _by_tarfile(root, order),
                anchor_name=f"`tarfile`, {_OPEN} kept open",
                target=0.05,
                rounds=min(rounds, 3),
                warmup=1,
            ),
            measure(
                "all samples in stored order",
                lambda: _by_offset(root, names),
                lambda: _sequential(root),
                anchor_name="`tarfile`, one pass",
                target=1.0,
                rounds=min(rounds, 3),
                warmup=1,
            ),
        ]
    clip = _clip()
    return [*found, *_decoding(clip, rounds=min(rounds, 5))]


def write_shards(root: Path, shards: int, samples: int) -> list[tuple[str, str]]:
    """Shards of samples with the members of `SIZES`; (shard, key) of each."""
    draw = random.Random(0)
    bodies = {suffix: draw.randbytes(size) for suffix, size in SIZES.items()}
    names = []
    for shard in range(shards):
        with tarfile.open(root / f"{shard}.tar", "w") as archive:
            for sample in range(samples):
                names.append((f"{shard}.tar", f"{shard:03}-{sample:05}"))
                for suffix, body in bodies.items():
                    info = tarfile.TarInfo(f"{shard:03}-{sample:05}.{suffix}")
                    info.size = len(body)
                    archive.addfile(info, io.BytesIO(body))
    return names


def _by_offset(root: Path, names: list[tuple[str, str]]) -> int:
    with ShardReader(root, max_open=_OPEN) as reader:
        return sum(len(reader.read(s, f"{n}.{suffix}")) for s, n in names for suffix in SIZES)


def _by_tarfile(root: Path, names: list[tuple[str, str]]) -> int:
    kept: OrderedDict[str, tarfile.TarFile] = OrderedDict()
    total = 0
    for shard, name in names:
        if shard not in kept:
            kept[shard] = tarfile.open(root / shard)  # noqa: SIM115
            if len(kept) > _OPEN:
                kept.popitem(last=False)[1].close()
        kept.move_to_end(shard)
        for suffix in SIZES:
            stream = kept[shard].extractfile(f"{name}.{suffix}")
            total += len(stream.read()) if stream is not None else 0
    for archive in kept.values():
        archive.close()
    return total


def _sequential(root: Path) -> int:
    total = 0
    for path in sorted(root.glob("*.tar")):
        with tarfile.open(path) as archive:
            for info in archive:
                stream = archive.extractfile(info)
                total += len(stream.read()) if stream is not None else 0
    return total


def _clip() -> bytes:
    import av
    import numpy as np

    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (15, 26, 3), dtype=np.uint8)
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=16)
        stream.height, stream.width, stream.pix_fmt = 480, 832, "yuv420p"
        big = np.kron(pixels, np.ones((32, 32, 1), dtype=np.uint8))
        for frame in range(81):
            picture = np.roll(big, frame * 3, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def _plain(clip: bytes, *, keep: bool) -> int:
    import av
    import numpy as np

    with av.open(io.BytesIO(clip)) as container:
        container.streams.video[0].thread_type = "NONE"
        frames = (frame.to_ndarray(format="rgb24") for frame in container.decode(video=0))
        return np.stack(list(frames)).nbytes if keep else sum(frame.nbytes for frame in frames)


def _decoding(clip: bytes, *, rounds: int) -> list[Ratio]:
    def ours(data: bytes = clip) -> int:
        return decode_frames(data, range(81), sample_id="clip").nbytes

    def two_threads() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(ours, [clip] * 4))

    def in_turn() -> None:
        for _ in range(4):
            ours()

    return [
        measure(
            "decode 81 frames of 480x832",
            ours,
            lambda: _plain(clip, keep=True),
            anchor_name="plain PyAV, frames stacked",
            target=1.11,
            rounds=rounds,
            clock=time.process_time,
        ),
        measure(
            "the same",
            ours,
            lambda: _plain(clip, keep=False),
            anchor_name="plain PyAV, frames dropped",
            target=1.11,
            rounds=rounds,
            clock=time.process_time,
        ),
        measure(
            "decode 4 clips, two reader threads",
            two_threads,
            in_turn,
            anchor_name="one thread",
            target=1.0,
            rounds=rounds,
        ),
    ]
