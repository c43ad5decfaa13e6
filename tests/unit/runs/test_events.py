"""The event stream of a rank."""

from __future__ import annotations

import json
import math
from pathlib import Path

from solarwm.runs.events import EventWriter, effective_events, last_event, read_events
from solarwm.runs.layout import RunLayout


def test_each_event_is_one_line_with_the_published_keys(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    writer = EventWriter(layout, 3)
    writer.emit("optimizer_step", step=1, losses={"mean": 0.5}, gradient_norm=math.nan)
    writer.emit("checkpoint", step=1, checkpoint_id="checkpoint_model_000001")
    writer.close()
    writer.emit("late")
    path = tmp_path / "events" / "rank-00003.jsonl"
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["schema"] == "solarwm.training-step.v1"
    assert first["losses"] == {"mean": 0.5}
    assert first["gradient_norm"] == "nan"
    assert second["schema"] == "solarwm.training-event.v1"
    assert {first["world_rank"], second["world_rank"]} == {3}


def test_a_torn_last_line_does_not_swallow_the_next_event(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    writer = EventWriter(layout, 0)
    writer.emit("a", step=1)
    writer.close()
    path = layout.event_stream(0)
    with path.open("ab") as file:
        file.write(b'{"event": "b", "st')
    assert last_event(path)["event"] == "a"  # type: ignore[index]
    writer = EventWriter(layout, 0)
    writer.emit("c", step=2)
    writer.close()
    assert [event["event"] for event in read_events(path)] == ["a", "c"]
    assert last_event(path)["event"] == "c"  # type: ignore[index]


def test_steps_that_a_resume_took_back_count_once(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    writer = EventWriter(layout, 0)
    for step in (1, 2, 3, 4):
        writer.emit("optimizer_step", step=step)
    writer.emit("resume", step=2)
    for step in (3, 4, 5):
        writer.emit("optimizer_step", step=step)
    writer.close()
    events = effective_events(layout.event_stream(0))
    assert [e["step"] for e in events if e["event"] == "optimizer_step"] == [1, 2, 3, 4, 5]


def test_a_stream_that_is_not_there_has_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "none")) == []
    assert last_event(tmp_path / "none") is None
