"""Thinning out by hand: the newest is proven first, and nothing else than ours is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from solarwm.checkpoints.directory import prune, scan
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.storage.locks import DirectoryLock
from tests.fault.small_state import state_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store = CheckpointStore(tmp_path / "run")
    for step in (10, 20, 30, 40, 50):
        store.save(step, state_of(step))
    (tmp_path / "run" / "notes-step-10").mkdir()
    (tmp_path / "run" / "checkpoint_model_000060").mkdir()
    return tmp_path / "run"


def steps(run: Path) -> list[int]:
    return [entry.step for entry in scan(run).complete]


def test_the_newest_and_the_multiples_stay_and_foreign_names_are_untouched(run: Path) -> None:
    kept, removed = prune(run, keep_last=1, keep_every=20)
    assert [entry.step for entry in kept] == [20, 40, 50]
    assert [entry.step for entry in removed] == [10, 30]
    assert steps(run) == [20, 40, 50]
    names = {path.name for path in run.iterdir()}
    assert {"notes-step-10", "checkpoint_model_000060"} <= names
    assert scan(run).leftovers == ()


def test_zero_keeps_all_and_a_dry_run_removes_nothing(run: Path) -> None:
    assert prune(run, keep_last=0, keep_every=0)[1] == ()
    assert [entry.step for entry in prune(run, keep_last=2, keep_every=0, dry_run=True)[1]] == [
        10,
        20,
        30,
    ]
    assert steps(run) == [10, 20, 30, 40, 50]


def test_a_newest_that_is_not_sound_keeps_all_others(run: Path) -> None:
    member = next((run / "checkpoint_model_000050" / "student-model").glob("*.distcp"))
    data = bytearray(member.read_bytes())
    data[len(data) // 2] ^= 1
    member.write_bytes(data)
    with pytest.raises(SolarError) as told:
        prune(run, keep_last=1, keep_every=0)
    assert told.value.exit_code == 3
    assert steps(run) == [10, 20, 30, 40, 50]


def test_a_run_that_is_running_is_not_thinned_out(run: Path) -> None:
    lock = DirectoryLock(run).acquire()
    try:
        with pytest.raises(SolarError) as told:
            prune(run, keep_last=1, keep_every=0)
    finally:
        lock.release()
    assert told.value.exit_code == 2
    assert steps(run) == [10, 20, 30, 40, 50]
