"""Inspecting an index: one pass by columns against the plain way with the standard library."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from hashlib import blake2s
from itertools import islice
from pathlib import Path

from benchmarks.ratio import Ratio, measure
from solarwm.data.digest import inspect_index
from solarwm.data.index import read_index
from solarwm.data.plan import PlanSettings, PublishedOrder, Reader

_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*\Z")
_MEMBERS = ("video_member", "camera_member", "intrinsics_member", "manifest_member")
_CALLS = {
    "ours": "from solarwm.data.digest import inspect_index as f; r = f(Path(sys.argv[1]));"
    "found = (r.ordered_sample_id_digest, r.ordered_row_digest, r.decompressed_digest)",
    "plain": "from benchmarks.data_index import plain_digests as f; found = f(Path(sys.argv[1]))",
}
_PROCESS = (
    "import json, re, sys, time; from pathlib import Path; t = time.perf_counter(); {call};"
    "print(json.dumps([found, time.perf_counter() - t, "
    "int(re.search(r'VmHWM:\\s*([0-9]+)', Path('/proc/self/status').read_text())[1])]))"
)


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """Time of the pass, a fresh process a call; digests compared, peak memory printed."""
    count = 30_000 if quick else 150_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.jsonl.gz"
        _write(path, count)
        peaks: dict[str, int] = {}
        seconds = {"ours": 0.0, "plain": 0.0}
        digests: set[tuple[str, ...]] = set()

        def call(side: str) -> Callable[[], None]:
            def run() -> None:
                code = _PROCESS.format(call=_CALLS[side])
                done = subprocess.run(
                    [sys.executable, "-c", code, str(path)],
                    capture_output=True,
                    check=True,
                    timeout=300,
                )
                found, cpu_s, peak = json.loads(done.stdout)
                digests.add(tuple(found))
                if len(digests) > 1:
                    raise RuntimeError("the two ways give other digests")
                seconds[side] = cpu_s
                peaks[side] = peak

            return run

        calls = {side: call(side) for side in _CALLS}
        clock_s = [0.0]

        def timed(side: str) -> Callable[[], None]:
            def run() -> None:
                calls[side]()
                clock_s[0] += seconds[side]

            return run

        found = measure(
            f"`data inspect`, {count:,} rows, three digests",
            timed("ours"),
            timed("plain"),
            anchor_name="gzip + json, rows kept, three passes",
            target=0.40,
            rounds=min(rounds, 7),
            clock=lambda: clock_s[0],
        )
        print(f"peak memory: ours {peaks['ours'] >> 10} MiB, plain {peaks['plain'] >> 10} MiB")
        again = _opened_again(path, Path(folder) / "cache", count, rounds=min(rounds, 5))
        planned = _planned(path, count, rounds=min(rounds, 5))
        others = _polars(path, count, rounds=min(rounds, 5))
    return [found, again, planned, *others]


def _planned(path: Path, count: int, *, rounds: int) -> Ratio:
    """The first 16 plans of one rank of eight, against making the list of all of them first."""
    index = read_index(path, cache=path.parent / "cache", least_bytes=0)
    settings = PlanSettings(seed=42, frames=81, shuffle_buffer=4096)
    reader = Reader(
        dp_rank=0, dp_world=8, node=0, num_nodes=1, local_dp_rank=0, local_dp_world=8,
        worker=0, num_workers=1,
    )  # fmt: skip
    return measure(
        f"`data plan`, first 16 of one rank of eight, {count:,} rows",
        lambda: list(islice(PublishedOrder(index, settings, reader).epoch(0), 16)),
        lambda: list(PublishedOrder(index, settings, reader).epoch(0))[:16],
        anchor_name="the list of all plans of that rank first",
        target=0.2,
        rounds=rounds,
    )


def _polars(path: Path, count: int, *, rounds: int) -> list[Ratio]:
    """Checking every row without digests, against polars reading the same columns on two threads."""
    try:
        import polars  # type: ignore[import-not-found]
    except ImportError as error:
        print(f"polars is left out: {error}")
        return []
    plain = path.with_suffix("")

    def theirs() -> None:
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        frame = polars.read_ndjson(plain)
        assert frame["sample_id"].n_unique() == count
        frame["epoch_repeats"].sum()

    return [
        measure(
            f"`data inspect --no-digests`, {count:,} rows, every row checked",
            lambda: inspect_index(path, digests=False),
            theirs,
            anchor_name="polars `read_ndjson`, unique ids, sum; two threads",
            target=1.25,
            rounds=rounds,
        )
    ]


def _opened_again(path: Path, cache: Path, count: int, *, rounds: int) -> Ratio:
    """Opening an index whose rows are kept, against the first opening, which checks and keeps them."""
    read_index(path, cache=cache, least_bytes=0)

    def first() -> None:
        shutil.rmtree(cache)
        read_index(path, cache=cache, least_bytes=0)

    return measure(
        f"opening an index of {count:,} rows again",
        lambda: read_index(path, cache=cache, least_bytes=0).rows[count // 2],
        first,
        anchor_name="opening it for the first time",
        target=0.02,
        rounds=rounds,
    )


def plain_digests(path: Path) -> tuple[str, str, str]:
    """The published digests (ids, rows, file) with the standard library, all rows kept."""
    kept: list[dict[str, object]] = []
    seen: set[str] = set()
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            row = dict(json.loads(line))
            if not all(isinstance(row[name], str) and row[name] for name in ("sample_id", "key")):
                raise ValueError("a row has no name")
            if not all(_KEY.match(row[name]) for name in ("shard", *_MEMBERS)):
                raise ValueError("a key is wrong")
            repeats = row.get("epoch_repeats", 1)
            if type(repeats) is not int or repeats < 1 or row["sample_id"] in seen:
                raise ValueError("a row is wrong")
            seen.add(row["sample_id"])
            kept.append(row)
    ids, texts, whole = blake2s(), blake2s(), blake2s()
    for row in kept:
        ids.update(f"{row['sample_id']}\n".encode())
        text = json.dumps(
            row, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        texts.update(f"{text}\n".encode())
    with gzip.open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            whole.update(block)
    return ids.hexdigest(), texts.hexdigest(), whole.hexdigest()


def _write(path: Path, count: int) -> None:
    draw = random.Random(0)
    words = ["a", "quiet", "street", "in", "the", "rain", "with", "slow", "people", "and", "trees"]
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as stream:
        for number in range(count):
            key = f"demo__clip-{number:07d}"
            row = {
                "sample_id": f"demo/clip-{number:07d}",
                "key": key,
                "shard": f"raw-wds/demo/shards/kept-high-{number // 64:06d}.tar",
                "shard_size": 104_857_600 + number // 64,
                "epoch_repeats": 1 + (number % 7 == 0),
                "dataset": "demo",
                "kept_tier": "high",
                "recipe_role": "train",
                "num_frames": 960,
                "fps": 16.0,
                "width": 1280,
                "height": 720,
                "caption": " ".join(draw.choices(words, k=12)),
                "video_member": f"{key}.video.mp4",
                "camera_member": f"{key}.camera.npz",
                "intrinsics_member": f"{key}.intrinsics.npy",
                "manifest_member": f"{key}.manifest.json",
            }
            stream.write(json.dumps(row, separators=(",", ":")) + "\n")
