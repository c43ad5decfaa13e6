"""Trackers never hold training up, whatever they do."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solarwm.trackers.fanout import Fanout
from solarwm.trackers.tensorboard import TensorBoardTracker
from solarwm.trackers.terminal import TerminalTracker

FACTS = {
    "name": "run",
    "route": "r",
    "run_path": "/nowhere",
    "max_steps": 3,
    "first_step": 0,
    "world_size": 1,
    "global_batch_size": 4,
}


def _step(step: int) -> dict[str, Any]:
    return {
        "event": "optimizer_step",
        "step": step,
        "losses": {"mean": 0.5, "flow_matching": 0.5},
        "gradient_norm": 1.0,
        "lr": 1e-3,
        "step_time_s": 0.1,
        "data_wait_s": 0.0,
        "samples_per_s": 40.0,
    }


class Recording:
    name = "recording"

    def __init__(self, *, raises: bool = False, blocks: threading.Event | None = None) -> None:
        self.told: list[str] = []
        self._raises = raises
        self._blocks = blocks

    def start(self, facts: Mapping[str, Any]) -> None:
        self.told.append("start")
        if self._blocks:
            self._blocks.wait(30)
        if self._raises:
            raise OSError("no disk")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append(f"step {step} {values['loss.mean']}")

    def event(self, record: Mapping[str, Any]) -> None:
        self.told.append(str(record["event"]))

    def close(self, outcome: str) -> None:
        self.told.append(outcome)


def test_events_arrive_in_order_and_steps_as_scalars() -> None:
    tracker = Recording()
    fanout = Fanout([tracker])
    fanout.start(FACTS)
    fanout.event(_step(1))
    fanout.event({"event": "checkpoint", "step": 1})
    fanout.close("complete")
    assert tracker.told == ["start", "step 1 0.5", "checkpoint", "complete"]


def test_a_tracker_that_raises_is_dropped_with_one_note_and_the_others_go_on() -> None:
    notes: list[str] = []
    broken, sound = Recording(raises=True), Recording()
    fanout = Fanout([broken, sound], note=notes.append)
    fanout.start(FACTS)
    fanout.event(_step(1))
    fanout.close("complete")
    assert broken.told == ["start"]
    assert sound.told == ["start", "step 1 0.5", "complete"]
    assert notes == ["tracker recording is off: OSError: no disk"]


def test_a_tracker_that_blocks_costs_the_caller_nothing() -> None:
    release = threading.Event()
    fanout = Fanout([Recording(blocks=release)])
    started = time.monotonic()
    fanout.start(FACTS)
    for step in range(10_000):
        fanout.event(_step(step))
    assert time.monotonic() - started < 5
    release.set()
    fanout.close("complete")


def test_plain_lines_where_nobody_watches() -> None:
    stream = io.StringIO()
    fanout = Fanout([TerminalTracker(stream=stream, log_every=2)])
    fanout.start(FACTS)
    for step in (1, 2, 3):
        fanout.event(_step(step))
    fanout.event({"event": "checkpoint", "step": 3, "checkpoint_id": "checkpoint_model_000003"})
    fanout.close("complete")
    text = stream.getvalue()
    assert "step 1/3" not in text
    for part in ("step 2/3", "step 3/3", "loss 0.5000", "checkpoint_model_000003", "run complete"):
        assert part in text
    assert "\x1b" not in text


def test_tensorboard_files_hold_the_curves(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fanout = Fanout([TensorBoardTracker()])
    fanout.start(FACTS | {"run_path": str(tmp_path)})
    for step in (1, 2):
        fanout.event(_step(step))
    fanout.close("complete")
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    points = read.Scalars("loss/mean")
    assert [(point.step, point.value) for point in points] == [(1, 0.5), (2, 0.5)]
