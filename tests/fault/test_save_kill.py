"""Real kills of a process that saves, on real files."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from solarwm.checkpoints.store import CheckpointStore
from tests.fault.small_state import check_after_fault, state_of

SEED = 20
NUM_VALUES = 200_000
KILLS = 20


def _save_for_ever(root: Path, first: int) -> None:
    store = CheckpointStore(root, keep_last=2)
    for step in range(first, first + 10_000):
        store.save(step, state_of(step, num_values=NUM_VALUES))


def test_twenty_kills_during_saves_never_cost_a_checkpoint(tmp_path: Path) -> None:
    _kill_saves(tmp_path, KILLS)


@pytest.mark.soak
def test_five_hundred_kills_during_saves_never_cost_a_checkpoint(tmp_path: Path) -> None:
    _kill_saves(tmp_path, 500)


def _kill_saves(tmp_path: Path, kills: int) -> None:
    draws = random.Random(SEED)
    print(f"seed {SEED}")
    store = CheckpointStore(tmp_path)
    for step in (1, 2):
        started = time.monotonic()
        store.save(step, state_of(step, num_values=NUM_VALUES))
        save_s = time.monotonic() - started
    last, torn = 2, 0
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            try:
                _save_for_ever(tmp_path, last + 1)
            finally:
                os._exit(1)
        time.sleep(draws.uniform(0.0, 3.0 * save_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        torn += len(store.listing().leftovers)
        found = check_after_fault(tmp_path, allowed=set(range(1, 100_000)), num_values=NUM_VALUES)
        assert found >= last
        last = found
    print(f"{torn} of {kills} kills cut a save short, step {last} reached")
    assert torn > 0
