"""A generation on a terminal: a bar where somebody watches, plain lines where nobody does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO


class GenerationProgress:
    """View of one rank's inference events; give `show` to the session. Writes to standard error."""

    def __init__(self, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = 0
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def show(self, event: Mapping[str, Any]) -> None:
        """Tell one event; kinds that say nothing to a person are passed over."""
        kind = event.get("event")
        if kind == "inference_start":
            self._start(int(event["clips"]))
        elif kind == "inference_sample":
            self._done += 1
            figure = event.get("psnr_truth")
            words = f"{figure:.2f} dB" if isinstance(figure, float) else ""
            line = (
                f"clip {self._done}/{self._total} of this rank: {event['pass']} slot {event['slot']} "
                f"{words} ({event['duration_s']:.1f} s)"
            )
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done)
            else:
                self._line(line)
        elif kind == "inference_error":
            self._line(f"failed: {event['pass']} slot {event['slot']}: {event['message']}")
        elif kind == "note":
            self._line(str(event.get("text", "")))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _start(self, total: int) -> None:
        self._total = total
        if self._stream.isatty() and total:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
            )
            self._bar.start()
            self._task = self._bar.add_task("clips of this rank", total=total)

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, highlight=False)
        else:
            print(text, file=self._stream, flush=True)
