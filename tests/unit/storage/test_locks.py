"""A directory lock that dies with its holder."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from solarwm.errors.types import SolarError
from solarwm.storage.locks import LOCK_NAME, DirectoryLock, is_locked, read_holder


def test_a_second_holder_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as lock:
        lock.acquire()
        assert is_locked(tmp_path / LOCK_NAME)
        with pytest.raises(SolarError) as told:
            DirectoryLock(tmp_path).acquire()
    assert (told.value.code, told.value.exit_code) == ("run.directory-busy", 2)
    assert str(os.getpid()) in told.value.why
    assert not is_locked(tmp_path / LOCK_NAME)
    DirectoryLock(tmp_path).acquire({"command": "train"}).release()
    assert read_holder(tmp_path / LOCK_NAME)["command"] == "train"


def test_a_refused_start_changes_nothing(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        before = (tmp_path / LOCK_NAME).read_bytes(), (tmp_path / LOCK_NAME).stat().st_mtime_ns
        with pytest.raises(SolarError):
            DirectoryLock(tmp_path).acquire({"command": "other"})
        after = (tmp_path / LOCK_NAME).read_bytes(), (tmp_path / LOCK_NAME).stat().st_mtime_ns
    assert before == after


def test_a_killed_holder_leaves_no_lock_even_when_its_child_lives(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    holder = os.fork()
    if holder == 0:
        DirectoryLock(tmp_path).acquire()
        child = os.fork()
        if child == 0:
            os.write(writing, str(os.getpid()).encode())
            time.sleep(30)
            os._exit(0)
        time.sleep(30)
        os._exit(0)
    child = int(os.read(reading, 20))
    try:
        assert is_locked(tmp_path / LOCK_NAME)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        assert not is_locked(tmp_path / LOCK_NAME)
        DirectoryLock(tmp_path).acquire().release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reading)
        os.close(writing)


def test_looking_at_a_lock_neither_makes_nor_takes_it(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / LOCK_NAME)
    assert read_holder(tmp_path / LOCK_NAME) == {}
    assert not list(tmp_path.iterdir())
