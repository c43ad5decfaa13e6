"""A restarted group waits for the lock of the group before it; nobody else does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from solarwm.errors.types import SolarError
from solarwm.runs import admission
from solarwm.runs.layout import RunLayout
from solarwm.storage.locks import DirectoryLock

BEFORE = "launch-localhost:29400:one:0"


def test_a_restart_takes_the_lock_once_the_group_before_has_left(tmp_path: Path) -> None:
    held = DirectoryLock(tmp_path).acquire({"token": BEFORE})
    threading.Timer(0.6, held.release).start()
    started = time.monotonic()
    lock = admission.take(
        RunLayout(tmp_path), command="train", resuming=True, token="launch-localhost:31000:one:1"
    )
    assert time.monotonic() - started > 0.5
    assert lock.holder()["token"] == "launch-localhost:31000:one:1"
    lock.release()


@pytest.mark.parametrize(
    "token",
    [
        "launch-localhost:29400:two:1",
        "launch-localhost:29400:one:0",
        "launch-localhost:29400::1",
        "process-12",
    ],
)
def test_any_other_launch_is_refused_at_once(tmp_path: Path, token: str) -> None:
    with DirectoryLock(tmp_path) as held:
        held.release()
        held.acquire({"token": BEFORE})
        with pytest.raises(SolarError) as told:
            admission.take(RunLayout(tmp_path), command="train", resuming=True, token=token)
    assert (told.value.code, told.value.exit_code) == ("run.directory-busy", 2)
