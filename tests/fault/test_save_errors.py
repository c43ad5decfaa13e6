"""A save that meets an I/O error fails cleanly, at whichever operation it happens."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.storage.durable import is_private_name
from tests.fault.model_disk import ModelDisk
from tests.fault.small_state import check_after_fault, state_of

CODES = {
    errno.ENOSPC: "disk.full",
    errno.EIO: "disk.io",
    errno.EACCES: "disk.denied",
    errno.EROFS: "disk.read-only",
    errno.EINTR: "disk.failed",
}


@pytest.mark.parametrize("number", sorted(CODES))
def test_an_error_at_any_operation_keeps_the_old_checkpoint_and_frees_the_space(
    tmp_path: Path, number: int
) -> None:
    template = tmp_path / "template"
    CheckpointStore(template, num_threads=1).save(1, state_of(1))
    probe = Path(shutil.copytree(template, tmp_path / "count"))
    counting = ModelDisk()
    CheckpointStore(probe, num_threads=1, fs=counting).save(2, state_of(2))
    failures = 0
    for point in range(len(counting.trace)):
        root = Path(shutil.copytree(template, tmp_path / f"run-{point}"))
        disk = ModelDisk(fail_at=point, errno=number)
        with pytest.raises(SolarError) as told:
            CheckpointStore(root, keep_last=1, num_threads=1, fs=disk).save(2, state_of(2))
        assert told.value.code == CODES[number], disk.trace[-1]
        assert told.value.exit_code == 5
        assert (root / "checkpoint_model_000001").is_dir()
        assert not [path for path in root.iterdir() if is_private_name(path.name)]
        check_after_fault(root, allowed={1, 2})
        failures += 1
        shutil.rmtree(root)
    assert failures == len(counting.trace) >= 30


def test_a_disk_that_stays_full_leaves_nothing_of_the_failed_save(tmp_path: Path) -> None:
    CheckpointStore(tmp_path, num_threads=1).save(1, state_of(1))
    disk = ModelDisk(fail_at=12, errno=errno.ENOSPC, keeps_failing=True)
    with pytest.raises(SolarError, match="cannot write"):
        CheckpointStore(tmp_path, num_threads=1, fs=disk).save(2, state_of(2))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_model_000001"]


def test_a_removal_that_fails_is_told_and_stops_nothing(tmp_path: Path) -> None:
    CheckpointStore(tmp_path, num_threads=1).save(1, state_of(1))
    counting = ModelDisk()
    told: list[tuple[str, dict[str, object]]] = []
    CheckpointStore(tmp_path, num_threads=1, fs=counting).save(2, state_of(2))
    for offset in range(3):
        disk = ModelDisk(fail_at=len(counting.trace) + offset, errno=errno.EIO)
        store = CheckpointStore(
            tmp_path,
            keep_last=1,
            num_threads=1,
            fs=disk,
            notice=lambda event, fields: told.append((event, dict(fields))),
        )
        step = 3 + offset
        store.save(step, state_of(step))
        assert told[-1][0] in {"checkpoint_removed", "checkpoint_removal_failed"}
        assert check_after_fault(tmp_path, allowed={step}) == step
    assert [event for event, _ in told].count("checkpoint_removal_failed") == 3
