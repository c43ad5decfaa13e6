"""The run on a terminal: one live line, or plain lines where nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO


class TerminalTracker:
    """Rank 0's line on standard error. Plain text unless the stream is a terminal."""

    name = "terminal"

    def __init__(self, *, stream: TextIO | None = None, log_every: int = 10) -> None:
        self._stream = stream or sys.stderr
        self._log_every = max(1, log_every)
        self._live = self._stream.isatty()
        self._progress: Any = None
        self._task: Any = None
        self._encode_task: Any = None
        self._max_steps = 0
        self._told_at = 0.0

    def start(self, facts: Mapping[str, Any]) -> None:
        """Name the run and make room for its progress."""
        self._max_steps = int(facts["max_steps"])
        self._line(
            f"{facts['name']}: {facts['route']}, {facts['world_size']} process(es), global batch "
            f"{facts['global_batch_size']}, steps {facts['first_step']}..{self._max_steps}, "
            f"{facts['run_path']}"
        )
        if self._live:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=Console(file=self._stream),
            )
            self._progress.start()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One step done."""
        numbers = (
            f"loss {values.get('loss.mean', 0.0):.4f}  "
            f"norm {values.get('gradient_norm', 0.0):.3g}  "
            f"lr {values.get('lr', 0.0):.2e}  {values.get('step_time_s', 0.0) * 1e3:.0f} ms  "
            f"wait {values.get('data_wait_s', 0.0) * 1e3:.0f} ms  "
            f"{values.get('samples_per_s', 0.0):.1f} samples/s"
        )
        if self._progress is not None:
            if self._task is None:
                self._task = self._progress.add_task(
                    "train", total=self._max_steps, numbers=numbers
                )
            self._progress.update(self._task, completed=step, numbers=numbers)
        elif step % self._log_every == 0 or step == self._max_steps:
            self._line(f"step {step}/{self._max_steps}  {numbers}")

    def event(self, record: Mapping[str, Any]) -> None:
        """Phases, encoding progress, checkpoints, notes."""
        kind = record.get("event")
        if kind == "encode_progress":
            self._encoding(int(record["done"]), int(record["total"]))
        elif kind == "checkpoint":
            self._line(f"checkpoint {record.get('checkpoint_id')} at step {record.get('step')}")
        elif kind == "note":
            self._line(str(record.get("text", "")))
        elif kind == "sample_skipped":
            self._line(f"skipped sample {record.get('sample_id')}: {record.get('reason')}")

    def close(self, outcome: str) -> None:
        """Leave the terminal tidy."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        self._line(f"run {outcome}")

    def _encoding(self, done: int, total: int) -> None:
        if self._progress is not None:
            if self._encode_task is None:
                self._encode_task = self._progress.add_task("encode clips", total=total, numbers="")
            self._progress.update(self._encode_task, completed=done)
        elif done == total or time.monotonic() - self._told_at > 5.0:
            self._told_at = time.monotonic()
            self._line(f"encoded {done}/{total} clips of this rank")

    def _line(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(text, highlight=False)
        else:
            print(text, file=self._stream, flush=True)
