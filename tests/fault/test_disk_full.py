"""A disk that is really full: a small mount where that is allowed, a file size limit elsewhere."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.runs.diagnosis import diagnose
from solarwm.storage.durable import create_bytes, write_bytes_atomic
from solarwm.storage.space import free_bytes, require_free
from tests.fault.small_state import check_after_fault, state_of

NUM_VALUES = 60_000  # five tensors of 240 kB: 1.2 MB a checkpoint


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 5 MB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs privileges here")
    yield place
    # A child of a rank that just ended may still hold its output file for a moment.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_save_that_cannot_fit_is_refused_with_both_figures_before_it_writes(
    small_disk: Path,
) -> None:
    root = small_disk / "run"
    store = CheckpointStore(root)
    store.save(1, state_of(1, num_values=NUM_VALUES))
    (small_disk / "ballast").write_bytes(bytes(free_bytes(small_disk) - (1 << 20)))
    with pytest.raises(SolarError) as told:
        store.save(2, state_of(2, num_values=NUM_VALUES))
    assert told.value.code == "disk.full"
    assert told.value.context["need_bytes"] > told.value.context["free_bytes"]  # type: ignore[operator]
    assert [path.name for path in root.iterdir()] == ["checkpoint_model_000001"]


def test_a_disk_that_fills_up_during_a_save_costs_that_save_only(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_disk / "run"
    store = CheckpointStore(root, keep_last=1)
    store.save(1, state_of(1, num_values=NUM_VALUES))
    (small_disk / "ballast").write_bytes(bytes(free_bytes(small_disk) - 600_000))
    monkeypatch.setattr("solarwm.checkpoints.transaction.require_free", lambda *_: None)
    with pytest.raises(SolarError) as told:
        store.save(2, state_of(2, num_values=NUM_VALUES))
    assert (told.value.code, told.value.exit_code) == ("disk.full", 5)
    assert check_after_fault(root, allowed={1}, num_values=NUM_VALUES) == 1
    assert free_bytes(small_disk) >= 550_000
    (small_disk / "ballast").unlink()
    store.save(2, state_of(2, num_values=NUM_VALUES))
    assert check_after_fault(root, allowed={2}, num_values=NUM_VALUES) == 2


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, state_of(1, num_values=NUM_VALUES))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
        with pytest.raises(SolarError) as told:
            store.save(2, state_of(2, num_values=NUM_VALUES))
        with pytest.raises(SolarError) as atomic:
            write_bytes_atomic(tmp_path / "a", bytes(400_000))
        with pytest.raises(SolarError):
            create_bytes(tmp_path / "b", bytes(400_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert told.value.code == atomic.value.code == "disk.full"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_model_000001"]
    assert check_after_fault(tmp_path, allowed={1}, num_values=NUM_VALUES) == 1


def test_the_space_check_names_need_and_free(tmp_path: Path) -> None:
    free = free_bytes(tmp_path / "not" / "there" / "yet")
    require_free(tmp_path / "not" / "there", free // 2)
    with pytest.raises(SolarError, match="not enough free disk space") as told:
        require_free(tmp_path, free * 2)
    assert "are needed" in told.value.why


def test_a_run_whose_first_checkpoint_cannot_fit_ends_before_its_first_step(
    warm, small_disk: Path
) -> None:
    ended = warm.train(small_disk / "run", world_size=2)
    assert ended.codes == [5, 6]
    result = ended.result
    assert (result["exit_code"], result["code"]) == (5, "disk.full")
    assert diagnose(ended.root).verdict == "disk"
    assert result["context"]["need_bytes"] > result["context"]["free_bytes"]
    assert ended.events() == []
