"""Checkpoints with a digest of every byte against `dcp.save`, `dcp.load` and `b2sum` (targets 1.4).

256 MiB in 32 tensors, one process, page cache warm. What is loaded is compared before anything is timed.
Both sides remove what they wrote. The count that goes with the ratio is CPU time: hashing is most of ours.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from benchmarks.ratio import Ratio, measure
from solarwm.checkpoints.manifest import verify
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore

NUM_TENSORS = 32
NUM_VALUES = 2 << 20


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """Save, load and verify."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    num_values = NUM_VALUES // 4 if quick else NUM_VALUES
    tensors = {f"t{index}": torch.randn(num_values) for index in range(NUM_TENSORS)}
    into = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = CheckpointStore(root)
        path = store.save(0, _state(tensors))
        dcp.save(tensors, checkpoint_id=str(root / "anchor"))
        store.load_into(path, {"student": RoleState(model=into)})
        if not all(torch.equal(into[name], tensor) for name, tensor in tensors.items()):
            raise RuntimeError("what was loaded is not what was saved")
        files = [str(file) for file in sorted(path.rglob("*")) if file.is_file()]
        saves = _our_saves(store, tensors), _anchor_saves(root, tensors)
        loads = (
            lambda: store.load_into(path, {"student": RoleState(model=into)}),
            lambda: dcp.load(dict(into), checkpoint_id=str(root / "anchor")),
        )
        sums = (lambda: verify(path)), lambda: _b2sum(files)
        cases = (
            ("save with digests", *saves, "dcp.save", 1.15),
            ("load with digests", *loads, "dcp.load", 1.1),
            ("verify", *sums, "b2sum -l 256", 1 / 0.9),
        )
        for name, ours, anchor, label, _ in cases:
            print(f"{name}: CPU {_cpu_s(ours):.2f} s, {label} {_cpu_s(anchor):.2f} s")
        return [
            measure(name, ours, anchor, anchor_name=label, target=target, rounds=rounds)
            for name, ours, anchor, label, target in cases
        ]


def _state(tensors: dict[str, torch.Tensor]) -> CheckpointState:
    facts = Facts(
        occurrences=0,
        route="bench",
        resolved_digest="0" * 64,
        numerics="corrected",
        topology={},
        versions={},
        contract={},
        config={},
    )
    return CheckpointState(roles={"student": RoleState(model=tensors)}, facts=facts)


def _our_saves(store: CheckpointStore, tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
    steps = count(1)

    def save() -> None:
        shutil.rmtree(store.save(next(steps), _state(tensors)))

    return save


def _anchor_saves(root: Path, tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
    steps = count(1)

    def save() -> None:
        target = root / f"dcp-{next(steps)}"
        dcp.save(tensors, checkpoint_id=str(target))
        shutil.rmtree(target)

    return save


def _b2sum(files: list[str]) -> None:
    subprocess.run(["b2sum", "-l", "256", *files], check=True, capture_output=True)


def _cpu_s(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before
