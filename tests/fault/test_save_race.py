"""Two writers, one directory: exactly one of them writes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.runs.admission import take
from solarwm.runs.layout import RunLayout
from solarwm.storage.durable import create_bytes, staged_directory
from tests.fault.small_state import state_of


def _both(act: list[object], start_at: float) -> list[int]:
    """Run each callable of `act` in a child that starts at the same moment; their exit codes."""
    children: list[int] = []
    for work in act:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                time.sleep(max(0.0, start_at - time.monotonic()))
                code = work()  # type: ignore[operator]
            except SolarError as fault:
                code = fault.exit_code
            except FileExistsError:
                code = 17
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_of_two_starts_in_one_directory_exactly_one_is_let_in(tmp_path: Path) -> None:
    for race in range(10):
        root = tmp_path / f"run-{race}"

        def start(root: Path = root) -> int:
            take(RunLayout(root), command="train", resuming=False, token="t")
            time.sleep(0.6)
            return 0

        assert sorted(_both([start, start], time.monotonic() + 0.05)) == [0, 2]


def test_of_two_saves_of_one_step_exactly_one_is_published(tmp_path: Path) -> None:
    for race in range(5):
        root = tmp_path / f"run-{race}"
        root.mkdir()

        def save(root: Path = root) -> int:
            CheckpointStore(root, num_threads=1).save(1, state_of(1))
            return 0

        assert sorted(_both([save, save], time.monotonic() + 0.05)) == [0, 5]
        store = CheckpointStore(root)
        assert [entry.step for entry in store.list()] == [1]
        store.verify(root / "checkpoint_model_000001")
        assert not store.listing().leftovers


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_of_two_publications_exactly_one_wins(tmp_path: Path, kind: str) -> None:
    for race in range(10):
        target = tmp_path / f"{kind}-{race}"

        def publish(target: Path = target) -> int:
            if kind == "file":
                create_bytes(target, str(os.getpid()).encode())
            else:
                with staged_directory(target) as private:
                    (private / "who").write_text(str(os.getpid()))
            return 0

        assert sorted(_both([publish, publish, publish], time.monotonic() + 0.03)) == [0, 17, 17]
    assert len(list(tmp_path.iterdir())) == 10
