"""Signals taken by a thread, so that a rank stuck in a collective still hears them.

SIGTERM and SIGINT are blocked in every other thread and waited for here. The first one asks for a
stop at the next step boundary; if the boundary does not come in time, or a second signal does, the
owner is told to leave at once. A Python handler with a wakeup descriptor stays as second net, for
threads that were started with the signals open.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
BOUNDARY_S = 20.0
"""Longest wait for a step boundary after the first signal; torchrun kills after 30 s."""
SAVE_S = 27.0
"""Longest stay after the first signal once the boundary is reached."""
ECHO_S = 2.0
"""Signals this close together count as one: a terminal and torchrun both pass the same Ctrl-C on.
"""


def block_in_this_thread() -> None:
    """Block the stop signals for the calling thread and all threads it starts later.

    To be called again after anything that starts a process: starting the multiprocessing resource
    tracker unblocks them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def restore_in_child() -> None:
    """Give a child process the ordinary meaning of the stop signals: its first act."""
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class SignalWatcher:
    """One watching thread. `leave(signal number)` must not return; `tick` runs about every
    `tick_s`.

    To be started and stopped by the main thread. `requested` is the first signal, or None.
    """

    def __init__(
        self,
        *,
        leave: Callable[[int], None],
        tick: Callable[[], None],
        tick_s: float = 0.25,
        boundary_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requested: int | None = None
        self._leave = leave
        self._tick = tick
        self._tick_s = tick_s
        self._boundary_s = BOUNDARY_S if boundary_s is None else boundary_s
        self._clock = clock
        self._first_at = 0.0
        self._at_boundary = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="solarwm-signals", daemon=True)
        self._kept: dict[int, Handler] = {}
        self._pipe = (-1, -1)

    def start(self) -> None:
        """Block the signals here and begin to watch."""
        resource_tracker.ensure_running()
        self._pipe = os.pipe()
        for descriptor in self._pipe:
            os.set_blocking(descriptor, False)
        for number in STOP_SIGNALS:
            self._kept[number] = signal.signal(number, _heard)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        block_in_this_thread()
        _watch_forks()
        _ACTIVE.add(self)
        self._thread.start()

    def stop(self) -> None:
        """End the watch and put handlers and mask back as they were."""
        self._closed.set()
        self._thread.join(timeout=5 * self._tick_s + 1.0)
        _ACTIVE.discard(self)
        signal.set_wakeup_fd(-1)
        for number, handler in self._kept.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        for descriptor in self._pipe:
            os.close(descriptor)

    def reached_boundary(self) -> None:
        """The asked-for step boundary has come; from here only saving may take time."""
        self._at_boundary = True

    def ask(self, number: int) -> None:
        """Ask for a stop as signal `number` would."""
        now = self._clock()
        if self.requested is None:
            self.requested, self._first_at = number, now
        elif now - self._first_at > ECHO_S:
            self._leave(number)

    def _watch(self) -> None:
        while not self._closed.is_set():
            number = _next_signal(self._pipe[0], self._tick_s)
            if number is not None:
                self.ask(number)
            if self.requested is not None:
                limit = SAVE_S if self._at_boundary else self._boundary_s
                if self._clock() - self._first_at > limit:
                    self._leave(self.requested)
            self._tick()


def _next_signal(descriptor: int, timeout_s: float) -> int | None:
    if hasattr(signal, "sigtimedwait"):
        info = signal.sigtimedwait(STOP_SIGNALS, timeout_s)
        if info is not None:
            return info.si_signo
        timeout_s = 0.0
    if select.select([descriptor], [], [], timeout_s)[0]:
        with contextlib.suppress(BlockingIOError):
            heard = os.read(descriptor, 64)
            return next((number for number in heard if number in STOP_SIGNALS), None)
    return None


def _heard(number: int, frame: FrameType | None) -> None:
    """The wakeup descriptor has told the watcher already."""


_ACTIVE: set[SignalWatcher] = set()
_fork_hook: list[bool] = []


def _watch_forks() -> None:
    if not _fork_hook:
        _fork_hook.append(True)
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    if _ACTIVE:
        _ACTIVE.clear()
        restore_in_child()
