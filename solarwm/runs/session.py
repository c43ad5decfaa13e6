"""One rank's life in a run directory: admission, phases, heartbeats, signals, and a record of how
it ended.

Used by training and generation alike. Knows no torch: peers are seen through their files.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from solarwm.errors.types import SolarError
from solarwm.runs import admission, ending
from solarwm.runs.events import EventWriter
from solarwm.runs.failure import write_failure
from solarwm.runs.heartbeat import write_heartbeat
from solarwm.runs.layout import RunLayout
from solarwm.runs.signals import SignalWatcher
from solarwm.storage.locks import DirectoryLock

BEAT_S = 2.0
LOOK_S = 1.0
"""Time between two looks at the other ranks' failure records."""
PEER_GRACE_S = 4.0
"""How long a rank may take to leave by itself after another one's failure is on record."""
STOPPED_PEER_GRACE_S = 15.0
"""The same after one that was stopped by a signal, while this one may still be finishing."""
AGENT_GRACE_S = 6.0
"""How long a rank may take to reach a step boundary after its launcher has gone."""
EXIT_S = 8
"""A failing process that has not ended this long after its record is ended by an alarm."""


class LaunchFacts(Protocol):
    """What a session asks of the launcher."""

    @property
    def world_rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def under_launcher(self) -> bool: ...

    @property
    def token(self) -> str: ...


class CollectiveFacts(Protocol):
    """What a session asks of the log of collectives; both may be called from any thread."""

    def place(self) -> dict[str, Any]:
        """`last_collective`, `inside_collective` and `collective_counts`."""
        ...

    def record(self) -> dict[str, Any]:
        """The same and more, for a failure record."""
        ...


class RunSession:
    """A context in which a command runs. On the way out, however, the run directory says what
    happened.

    `resuming` admits a directory that holds this run already; otherwise such a directory is refused
    (exit 2) before anything is written. `opening` writes the launch files on rank 0. `views` are
    told every event of rank 0. Must be entered in the main thread, best before torch is imported.
    """

    def __init__(
        self,
        layout: RunLayout,
        launch: LaunchFacts,
        *,
        command: str,
        opening: Callable[[RunLayout, str], None],
        resuming: bool = False,
        view: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.layout = layout
        self.launch = launch
        self.command = command
        self._opening = opening
        self._resuming = resuming
        self._view = view
        self._lock: DirectoryLock | None = None
        self._events: EventWriter | None = None
        self._phase = "init"
        self._step = 0
        self._collectives: CollectiveFacts | None = None
        self._outcome: dict[str, Any] = {}
        self._started = time.time()
        self._beat_at = 0.0
        self._looked_at = 0.0
        self._peer_seen_at: float | None = None
        self._agent_gone_at: float | None = None
        self._parent = os.getppid()
        self._ending = threading.Lock()
        self._watcher = SignalWatcher(leave=self._leave_for_signal, tick=self._tick)

    @property
    def stop_requested(self) -> int | None:
        """The signal that asked this rank to stop, or None."""
        return self._watcher.requested

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which speaks for the run."""
        return self.launch.world_rank == 0

    def emit(self, event: str, **fields: Any) -> None:
        """Add one event to this rank's stream; rank 0's views see it too."""
        assert self._events is not None
        self._events.emit(event, **fields)
        if self._view is not None and self.is_main:
            with contextlib.suppress(Exception):
                self._view({"event": event, **fields})

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Name what is going on, for heartbeats and failure records; restored afterwards unless it
        failed."""
        outer, self._phase = self._phase, name
        self._beat_at = 0.0
        yield
        self._phase = outer

    def enter(self, name: str) -> None:
        """Name what is going on from here on."""
        self._phase = name
        self._beat_at = 0.0

    def at_step(self, step: int) -> None:
        """The optimizer step that is being made."""
        self._step = step

    def at_boundary(self) -> None:
        """The step boundary that a signal asked for is reached."""
        self._watcher.reached_boundary()

    def watch_collectives(self, log: CollectiveFacts) -> None:
        """Tell heartbeats and failure records where this rank is among the collectives."""
        self._collectives = log

    def note_outcome(self, **fields: Any) -> None:
        """Fields for `run-result.json` beside the standard ones."""
        self._outcome.update(fields)

    def raise_if_stopped(self, number: int | None = None) -> None:
        """Raise the error of the signal `number`, or of the one this rank was sent."""
        number = number or self.stop_requested
        if number:
            raise stop_error(number)

    def __enter__(self) -> RunSession:
        self._watcher.start()
        try:
            if self.is_main:
                self._lock = admission.take(
                    self.layout,
                    command=self.command,
                    resuming=self._resuming,
                    token=self.launch.token,
                )
                self._opening(self.layout, self.launch.token)
            else:
                admission.wait(
                    self.layout, token=self.launch.token, stopped=lambda: self.stop_requested
                )
            self._events = EventWriter(self.layout, self.launch.world_rank)
            self.emit(
                "start",
                command=self.command,
                world_size=self.launch.world_size,
                process_id=os.getpid(),
            )
            self._beat()
        except BaseException as error:
            if self._lock is not None:
                self._fail(error)
            self._watcher.stop()
            if self._lock is not None:
                self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self._complete()
        else:
            self._fail(error)
        self._watcher.stop()
        if self._lock is not None:
            self._lock.release()
        return False

    def _complete(self) -> None:
        self.emit("end", status="complete", exit_code=0)
        self._close_events()
        self._beat(state="ended")
        if self.is_main:
            ending.write_outcome(
                self.layout, status="complete", exit_code=0, facts=self._facts() | self._outcome
            )

    def _fail(self, error: BaseException) -> None:
        """Write this rank's record and, where it falls to this rank, the result of the run."""
        with self._ending:
            if self._launcher_is_gone() and exit_code_of(error) in ending.STOP_CODES:
                error = SolarError("distributed.agent-gone", "the launcher of this rank is gone")
            code = exit_code_of(error)
            if code == 143 and self._peer_failed():
                code = 6
            self._record(code, error)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            if self.launch.world_size > 1:
                signal.alarm(EXIT_S)
            ending.conclude(
                self.layout,
                launch=self.launch,
                own_code=code,
                facts=self._facts() | self._outcome,
            )
            self._close_events()
            self._beat(state="ended")

    def _record(
        self, code: int, error: BaseException | None, *, reason: str = "", stuck: bool = False
    ) -> None:
        solar = error if isinstance(error, SolarError) else None
        fields: dict[str, Any] = {
            "exit_code": code,
            "code": solar.code if solar else ("bug.unexpected" if error else ""),
            "message": str(error) if error else reason,
            "error_type": type(error).__name__ if error else "",
            "phase": self._phase,
            "step": self._step,
            "last_collective": "",
            "token": self.launch.token,
            "context": dict(solar.context) if solar else {},
            "stuck": stuck,
        }
        if self._collectives is not None:
            with contextlib.suppress(Exception):
                fields |= self._collectives.record()
        if error is None:
            fields["traceback"] = _where_threads_are()
        elif solar is None or solar.exit_code in (6, 70):
            fields["traceback"] = "".join(traceback.format_exception(error))[-20000:]
        with contextlib.suppress(Exception):
            write_failure(self.layout, self.launch.world_rank, **fields)
        with contextlib.suppress(Exception):
            self.emit(
                "failure",
                **{name: fields[name] for name in ("exit_code", "message", "phase", "step")},
            )

    def _facts(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "phase": self._phase,
            "step": self._step,
            "token": self.launch.token,
            "world_size": self.launch.world_size,
            "duration_s": round(time.time() - self._started, 3),
            "written_by_rank": self.launch.world_rank,
        }

    def _close_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(Exception):
                self._events.close()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._beat_at >= BEAT_S and self._events is not None:
            self._beat_at = now
            self._beat()
        if self._agent_gone_at is None and self._launcher_is_gone():
            self._agent_gone_at = now
            self._watcher.ask(signal.SIGTERM)
        if self._agent_gone_at is not None and now - self._agent_gone_at > AGENT_GRACE_S:
            self._leave(6, "the launcher is gone")
        if self._events is None or self.launch.world_size == 1 or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        if self._peer_seen_at is None and self._peer_codes():
            self._peer_seen_at = now
        if self._peer_seen_at is None:
            return
        grace = PEER_GRACE_S if self._peer_failed() else STOPPED_PEER_GRACE_S
        if now - self._peer_seen_at > grace:
            why = "another rank failed while this one was busy elsewhere"
            self._leave(6, why, stuck=True)

    def _peer_codes(self) -> list[int]:
        """Exit codes on record of this launch's other ranks."""
        own = self.launch.world_rank
        found = ending.records(self.layout, self.launch.token)
        return [record["exit_code"] for record in found if record["world_rank"] != own]

    def _peer_failed(self) -> bool:
        """Whether another rank ended otherwise than by a signal of its own."""
        return any(code not in ending.STOP_CODES for code in self._peer_codes())

    def _launcher_is_gone(self) -> bool:
        return self.launch.under_launcher and os.getppid() != self._parent

    def _beat(self, state: str = "running") -> None:
        with contextlib.suppress(Exception):
            place = self._collectives.place() if self._collectives is not None else {}
            write_heartbeat(
                self.layout,
                self.launch.world_rank,
                **place,
                step=self._step,
                phase=self._phase,
                state=state,
                token=self.launch.token,
            )

    def _leave_for_signal(self, number: int) -> None:
        code = 6 if self._peer_failed() else exit_code_of(stop_error(number))
        self._leave(code, f"{signal.Signals(number).name}: no step boundary came in time")

    def _leave(self, code: int, reason: str, *, stuck: bool = False) -> None:
        """End the process from the watching thread, with its record. Does not return."""
        if not self._ending.acquire(blocking=False):
            return
        self._record(code, None, reason=reason, stuck=stuck)
        with contextlib.suppress(Exception):
            ending.conclude(
                self.layout, launch=self.launch, own_code=code, facts=self._facts() | self._outcome
            )
        with contextlib.suppress(Exception):
            print(
                f"solarwm: rank {self.launch.world_rank} leaves: {reason}",
                file=sys.stderr,
                flush=True,
            )
        os._exit(code)


def _where_threads_are() -> str:
    """File, line and function of every thread, for a record written while the main one is stuck."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")[-20000:]
    return ""


def stop_error(number: int) -> SolarError:
    """The error a stop by signal `number` ends with."""
    if number == signal.SIGINT:
        return SolarError("run.interrupted", "stopped by SIGINT at a step boundary")
    return SolarError("run.terminated", "stopped by SIGTERM at a step boundary")


def exit_code_of(error: BaseException) -> int:
    """The exit code of an exception: its own, 130 for an interrupt, 5 for memory, else 70."""
    if isinstance(error, SolarError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return 5
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    return 70


def run_directory(output_dir: str, working_directory: Path) -> Path:
    """The absolute run directory of a config's `runtime.output_dir`; `~` is expanded."""
    return working_directory / Path(output_dir).expanduser()
