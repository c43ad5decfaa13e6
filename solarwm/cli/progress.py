"""Progress of a counted task on stderr: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def counted(verb: str, things: str) -> Generator[Callable[[int, int], None]]:
    """Yields a function that is told (done, of); `verb` and `things` name the task."""
    if not sys.stderr.isatty():
        yield _Lines(verb, things)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(
        f"{verb} {things}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


class _Lines:
    """A plain line whenever another tenth is done."""

    def __init__(self, verb: str, things: str) -> None:
        self._verb = verb
        self._things = things
        self._tenths = 0

    def __call__(self, done: int, of: int) -> None:
        tenths = 10 * done // of if of else 10
        if tenths > self._tenths:
            self._tenths = tenths
            sys.stderr.write(f"{self._verb}: {done} of {of} {self._things}\n")
            sys.stderr.flush()
