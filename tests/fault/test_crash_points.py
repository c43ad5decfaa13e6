"""Every operation of a save, stopped before or after, on a disk that keeps or forgets what was unsynced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from solarwm.checkpoints.manifest import MARKER_NAME
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.storage.operations import FileSystem
from tests.fault.model_disk import ModelDisk, Stopped, WithoutDirectorySync, WithoutFileSync
from tests.fault.small_state import check_after_fault, state_of

MODES = ("keep", "drop", "tear")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that holds the checkpoint of step 1."""
    root = tmp_path_factory.mktemp("template") / "run"
    _save(root, 1)
    return root


def _save(root: Path, step: int) -> None:
    CheckpointStore(root, num_threads=1, fs=ModelDisk()).save(step, state_of(step))


def _second_save(root: Path, disk: FileSystem, *, keep_last: int = 1) -> None:
    CheckpointStore(root, keep_last=keep_last, num_threads=1, fs=disk).save(2, state_of(2))


def _num_operations(root: Path) -> int:
    disk = ModelDisk()
    _second_save(root, disk)
    assert 30 <= len(disk.trace) <= 80
    return len(disk.trace)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", ["stop_before", "stop_after"])
def test_a_stop_at_any_operation_leaves_the_old_or_the_new_checkpoint(
    template: Path, tmp_path: Path, mode: str, when: str
) -> None:
    taken: set[int] = set()
    count = _num_operations(Path(shutil.copytree(template, tmp_path / "count")))
    for number in range(count):
        root = Path(shutil.copytree(template, tmp_path / f"run-{number}"))
        disk = ModelDisk(**{when: number})
        with pytest.raises(Stopped):
            _second_save(root, disk)
        disk.crash(mode)
        taken.add(check_after_fault(root, allowed={1, 2}))
        if number % 8 == 0:
            _save(root, 3)
            assert check_after_fault(root, allowed={3}) == 3
        shutil.rmtree(root)
    assert taken == {1, 2}


@pytest.mark.parametrize("mode", MODES)
def test_a_save_that_returned_survives_any_crash(tmp_path: Path, mode: str) -> None:
    _save(tmp_path, 1)
    disk = ModelDisk()
    _second_save(tmp_path, disk)
    disk.crash(mode)
    assert check_after_fault(tmp_path, allowed={2}) == 2


def test_the_marker_is_written_after_every_other_file_and_before_the_rename(tmp_path: Path) -> None:
    disk = ModelDisk()
    _second_save(tmp_path, disk)
    creations = [line for line in disk.trace if line.startswith("create ")]
    assert creations[-1] == f"create {MARKER_NAME}"
    rename = next(i for i, line in enumerate(disk.trace) if line.startswith("publish_directory"))
    assert rename > disk.trace.index(f"fsync {MARKER_NAME}")
    assert disk.trace[rename + 1].startswith("fsync_directory")


def test_a_store_that_does_not_sync_directories_is_caught(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    disk = WithoutDirectorySync()
    _second_save(tmp_path, disk, keep_last=0)
    disk.crash("drop")
    with pytest.raises(AssertionError):
        check_after_fault(tmp_path, allowed={2})


def test_a_store_that_does_not_sync_files_is_caught(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    disk = WithoutFileSync()
    _second_save(tmp_path, disk)
    disk.crash("tear")
    with pytest.raises((AssertionError, SolarError)):
        check_after_fault(tmp_path, allowed={1, 2})


def test_a_store_that_writes_its_marker_first_is_caught(template: Path, tmp_path: Path) -> None:
    model = CheckpointStore(tmp_path / "model", num_threads=1)
    source = model.save(2, state_of(2))
    files = sorted(path for path in source.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.name != MARKER_NAME)

    def marker_first(root: Path, disk: ModelDisk) -> None:
        final = root / source.name
        disk.make_directory(final)
        for folder in sorted(path for path in source.iterdir() if path.is_dir()):
            disk.make_directory(final / folder.name)
        for path in files:
            file = disk.create(final / path.relative_to(source))
            file.write(path.read_bytes())
            file.fsync()
            file.close()
        disk.fsync_directory(root)

    caught = 0
    for number in range(3 * len(files)):
        root = Path(shutil.copytree(template, tmp_path / f"run-{number}"))
        disk = ModelDisk(stop_after=number)
        with pytest.raises(Stopped):
            marker_first(root, disk)
        disk.crash("tear")
        try:
            check_after_fault(root, allowed={1, 2})
        except (AssertionError, SolarError):
            caught += 1
    assert caught > len(files)
