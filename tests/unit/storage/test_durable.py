"""Files and directories that exist whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from solarwm.errors.types import SolarError
from solarwm.storage import durable
from solarwm.storage.operations import LOCAL, FileSystem, LocalFileSystem

FILE_SYSTEMS: list[FileSystem] = [
    LOCAL,
    LocalFileSystem(links=False),
    LocalFileSystem(links=False, exclusive_rename=False),
]
KINDS = ["all calls", "no links", "neither links nor exclusive rename"]


@pytest.fixture(params=FILE_SYSTEMS, ids=KINDS)
def fs(request: pytest.FixtureRequest) -> FileSystem:
    """Each kind of file system that is provided for."""
    return request.param


def names(root: Path) -> list[str]:
    """What lies in a directory, but for the lock of the fallback."""
    return sorted(path.name for path in root.iterdir() if not path.name.endswith(".lock"))


def test_a_created_file_is_never_overwritten(tmp_path: Path, fs: FileSystem) -> None:
    target = tmp_path / "a"
    durable.create_bytes(target, b"first", fs=fs)
    with pytest.raises(FileExistsError):
        durable.create_bytes(target, b"second", fs=fs)
    with pytest.raises(FileExistsError):
        fs.publish_file(tmp_path / "a", tmp_path / "a")
    assert target.read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


def test_an_atomic_write_replaces_the_file_and_leaves_no_private_one(
    tmp_path: Path, fs: FileSystem
) -> None:
    durable.write_bytes_atomic(tmp_path / "a", b"old", fs=fs)
    durable.write_bytes_atomic(tmp_path / "a", bytearray(b"new"), fs=fs)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_a_link_keeps_the_inode_where_there_are_links_and_the_bytes_everywhere(
    tmp_path: Path, fs: FileSystem
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    durable.link_create_only(tmp_path / "a", tmp_path / "b", fs=fs)
    with pytest.raises(FileExistsError):
        durable.link_create_only(tmp_path / "a", tmp_path / "b", fs=fs)
    assert (tmp_path / "b").read_bytes() == b"content"
    same = (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino
    assert same == (fs is LOCAL)


def test_a_symbolic_link_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(SolarError, match="cannot publish"):
        durable.link_create_only(tmp_path / "link", tmp_path / "b")
    with pytest.raises(SolarError), durable.staged_directory(tmp_path / "d") as private:
        (private / "inside").symlink_to(tmp_path / "a")
    assert names(tmp_path) == ["a", "link"]


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path, fs: FileSystem) -> None:
    with durable.staged_directory(tmp_path / "d", fs=fs) as private:
        (private / "sub").mkdir()
        (private / "sub" / "f").write_text("1")
        assert not (tmp_path / "d").exists()
    assert (tmp_path / "d" / "sub" / "f").read_text() == "1"
    with pytest.raises(KeyError), durable.staged_directory(tmp_path / "e", fs=fs) as private:
        raise KeyError
    with pytest.raises(FileExistsError), durable.staged_directory(tmp_path / "d", fs=fs):
        pass
    assert names(tmp_path) == ["d"]


def test_a_directory_does_not_take_over_an_empty_one_that_appeared_meanwhile(
    tmp_path: Path, fs: FileSystem
) -> None:
    def race() -> None:
        with durable.staged_directory(tmp_path / "d", fs=fs) as private:
            (private / "f").write_text("1")
            (tmp_path / "d").mkdir()

    with pytest.raises(FileExistsError):
        race()
    assert names(tmp_path) == ["d"]
    assert not list((tmp_path / "d").iterdir())


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk.full"),
        (errno.EDQUOT, "disk.full"),
        (errno.EIO, "disk.io"),
        (errno.EROFS, "disk.read-only"),
        (errno.EACCES, "disk.denied"),
        (errno.ENOTDIR, "disk.failed"),
    ],
)
def test_an_operating_system_error_is_told_with_its_code_and_path(
    tmp_path: Path, number: int, code: str
) -> None:
    with pytest.raises(SolarError) as told, durable.storage_errors(tmp_path / "x"):
        raise OSError(number, os.strerror(number))
    assert (told.value.code, told.value.exit_code) == (code, 5)
    assert errno.errorcode[number] in told.value.why
    assert told.value.where == str(tmp_path / "x")


def test_a_missing_parent_is_a_disk_fault_and_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(SolarError):
        durable.write_bytes_atomic(tmp_path / "no" / "where", b"")
    durable.make_directories(tmp_path / "no" / "where")
    durable.make_directories(tmp_path / "no" / "where")
    assert (tmp_path / "no" / "where").is_dir()


def test_private_names_are_told_from_others(tmp_path: Path) -> None:
    private = durable.private_sibling(tmp_path / "checkpoint_model_000001")
    assert private.parent == tmp_path
    assert durable.is_private_name(private.name)
    for name in (".x.partial", "x.partial", private.name[1:], private.name + "x", ".git"):
        assert not durable.is_private_name(name)


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    durable.create_bytes(tmp_path / "a", b"0123456789")
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"0123456789"
