"""What a training step waits for data, and what a failing store costs a reader.

Loader: the quickstart's Stage0.5 with its clips encoded already, one process; the waits its own step
events tell, in units of the step. Store: an HTTP server on loopback, 30 ms away, whose reads fail one
time in twenty, against the same server that never fails; every byte is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

from benchmarks.ratio import Ratio, measure, of_pairs
from solarwm.data.transport.shard_cache import ShardCache
from solarwm.data.transport.stores import ObjectStore
from tests.fault.data.stores import FlakyStore, serving

CONFIG = Path(__file__).resolve().parents[1] / "configs/examples/quickstart/stage0p5.yaml"
SHARDS, SHARD_BYTES = 8, 4 << 20


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """The wait of a step, and reads from a failing store."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            _waits(Path(folder), steps=20 if quick else 60),
            _failures(Path(folder), rounds=min(rounds, 5)),
        ]


def _waits(folder: Path, *, steps: int) -> Ratio:
    world, run = folder / "world", folder / "run"
    sizes = ["--clips", "12", "--frames", "81", "--height", "64", "--width", "96", "--seed", "1"]
    _solarwm("data", "synthesize", "--out", str(world), *sizes)
    values = {
        "data.index_root": world,
        "data.transport.root": world,
        "distributed.world_size": 1,
        "train.grad_accum": 2,
        "train.max_steps": steps,
        "train.warmup_steps": 1,
        "runtime.save_every": 0,
        "runtime.output_dir": run,
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    _solarwm("train", "--config", str(CONFIG), *words)
    lines = (run / "events" / "rank-00000.jsonl").read_text().splitlines()
    steps_told = [event for event in map(json.loads, lines) if event["event"] == "optimizer_step"]
    pairs = [(event["data_wait_s"], event["step_time_s"]) for event in steps_told[1:]]
    return of_pairs("wait for data", pairs, anchor_name="the training step", target=0.01)


def _failures(folder: Path, *, rounds: int) -> Ratio:
    objects = {f"{number}.bin": os.urandom(SHARD_BYTES) for number in range(SHARDS)}
    numbers = count()

    def read_all(errors: float) -> None:
        store = FlakyStore(objects, errors=errors, latency_s=0.03)
        with serving(store) as root:
            directory = folder / f"cache-{next(numbers)}"
            cache = ShardCache(ObjectStore(root), directory, max_bytes=1 << 30)
            cache.prefetch((key, len(data)) for key, data in objects.items())
            for key, data in objects.items():
                if cache.path(key, len(data)).read_bytes() != data:
                    raise RuntimeError(f"{key} came out changed")

    return measure(
        f"{SHARDS} shards of {SHARD_BYTES >> 20} MiB, one read in twenty fails",
        lambda: read_all(0.05),
        lambda: read_all(0.0),
        anchor_name="the same store, no failures",
        target=2.0,
        rounds=rounds,
    )


def _solarwm(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        raise RuntimeError(f"solarwm {words[0]} ended with {done.returncode}: {done.stderr[-500:]}")
