"""Hands events to trackers from one thread each, so that a slow or broken one never holds training
up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from solarwm.trackers.seam import Tracker, step_scalars

DEPTH = 4096
CLOSE_S = 5.0


class Fanout:
    """Gives every event to every tracker, in order. A tracker that raises is dropped, with one
    note.

    When a tracker falls more than `DEPTH` events behind, it misses the newest ones; the event files
    miss none.
    """

    def __init__(
        self, trackers: Sequence[Tracker], *, note: Callable[[str], None] = lambda text: None
    ) -> None:
        self._lanes = [_Lane(tracker, note) for tracker in trackers]

    def start(self, facts: Mapping[str, Any]) -> None:
        """Open every tracker."""
        self._tell(lambda tracker: tracker.start(facts))

    def event(self, record: Mapping[str, Any]) -> None:
        """Pass one event of the stream on."""
        if record.get("event") == "optimizer_step":
            values = step_scalars(record)
            step = int(record["step"])
            self._tell(lambda tracker: tracker.scalars(step, values))
        else:
            self._tell(lambda tracker: tracker.event(record))

    def close(self, outcome: str) -> None:
        """Close every tracker, waiting at most a few seconds in all."""
        self._tell(lambda tracker: tracker.close(outcome))
        for lane in self._lanes:
            lane.end()

    def _tell(self, call: Callable[[Tracker], None]) -> None:
        for lane in self._lanes:
            lane.put(call)


class _Lane:
    def __init__(self, tracker: Tracker, note: Callable[[str], None]) -> None:
        self._tracker = tracker
        self._note = note
        self._calls: queue.Queue[Callable[[Tracker], None] | None] = queue.Queue(maxsize=DEPTH)
        self._broken = False
        self._thread = threading.Thread(
            target=self._run, name=f"solarwm-{tracker.name}", daemon=True
        )
        self._thread.start()

    def put(self, call: Callable[[Tracker], None] | None) -> None:
        if not self._broken:
            try:
                self._calls.put_nowait(call)
            except queue.Full:
                return

    def end(self) -> None:
        self.put(None)
        self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call(self._tracker)
            except Exception as error:
                self._broken = True
                self._note(f"tracker {self._tracker.name} is off: {type(error).__name__}: {error}")
                return
