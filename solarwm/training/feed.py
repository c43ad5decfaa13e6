"""Microbatches for one rank, made ahead by reader threads; the wait for them is measured.

Threads, not processes: decoding, reading, hashing and the codec leave the interpreter lock, and
what is encoded is held in one memory (figures in docs/benchmarks.md).

Slot i of a step whose cursor is c holds occurrence c + i of the data order; dp_rank d, micro m, row
b fill slot (m * dp_world + d) * B + b. The cursor counts consumed occurrences, whatever has been
prefetched.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Protocol

import torch

from solarwm.data.read_policy import ReadPolicy, Tally
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.mesh import MeshPlace
from solarwm.errors.types import SolarError
from solarwm.training.clips import EncodedClip


class ClipMaker(Protocol):
    """Gives the clip of an occurrence; safe to call from several threads."""

    def clip(self, occurrence: int) -> EncodedClip: ...


def slots_of(place: MeshPlace, *, micro: int, micro_batch_size: int) -> tuple[int, ...]:
    """The slots of the global batch that microbatch `micro` of this data-parallel place holds."""
    first = (micro * place.dp_world + place.dp_rank) * micro_batch_size
    return tuple(range(first, first + micro_batch_size))


def collate(
    clips: Sequence[EncodedClip], *, slots: Sequence[int], occurrences: Sequence[int]
) -> LatentBatch:
    """One microbatch of clips of equal shape."""
    return LatentBatch(
        latents_BFCHW=torch.stack([clip.latents_FCHW for clip in clips]),
        text_BTD=torch.stack([clip.text_TD for clip in clips]),
        viewmats_BF44=torch.stack([clip.viewmats_F44 for clip in clips]),
        intrinsics_B33=torch.stack([clip.intrinsics_33 for clip in clips]),
        sample_ids=tuple(clip.sample_id for clip in clips),
        start_frames=tuple(clip.start_frame for clip in clips),
        slots=tuple(slots),
        occurrences=tuple(occurrences),
    )


class Feed:
    """The microbatches of this rank from a cursor on, in order, without end.

    `workers` threads make clips ahead, `depth` microbatches each; the order never depends on them.
    With 0 workers clips are made when they are asked for.
    """

    def __init__(
        self,
        clips: ClipMaker,
        *,
        place: MeshPlace,
        micro_batch_size: int,
        accumulation: int,
        global_batch_size: int,
        cursor: int,
        depth: int = 2,
        workers: int = 1,
        patience_s: float = 600.0,
        name: Callable[[int], str] = lambda occurrence: f"occurrence {occurrence}",
        tally: Callable[[int], Tally] = lambda cursor: Tally(),
        policy: ReadPolicy | None = None,
        look_ahead: Callable[[Iterator[int]], None] = lambda occurrences: None,
    ) -> None:
        self.cursor = cursor
        self._clips = clips
        self._place = place
        self._micro_batch_size = micro_batch_size
        self._accumulation = accumulation
        self._global_batch_size = global_batch_size
        self._patience_s = patience_s
        self._name = name
        self._tally = tally
        self.policy = policy or ReadPolicy()
        self._look_ahead = look_ahead
        self._ahead = depth * workers
        self._wanted: queue.SimpleQueue[tuple[int, Future[EncodedClip]] | None]
        self._wanted = queue.SimpleQueue()
        self._planned: deque[_Planned] = deque()
        self._micro = 0
        self._first = cursor
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"solarwm-reader-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        self._plan()
        self._look_ahead(self._unplanned())

    def step_batches(self) -> tuple[list[LatentBatch], float]:
        """The microbatches of the next optimizer step and the seconds waited for them.

        Raises whatever a reader ran into, and `data.reader-blocked` (exit 5) when a sample is not
        there after `patience_s`.
        """
        started = time.perf_counter()
        batches = []
        for _ in range(self._accumulation):
            self._plan()
            planned = self._planned.popleft() if self._planned else self._next()
            clips = [
                self._taken(occurrence, future)
                for occurrence, future in zip(planned.occurrences, planned.futures, strict=True)
            ]
            self._plan()
            batches.append(collate(clips, slots=planned.slots, occurrences=planned.occurrences))
        self.cursor += self._global_batch_size
        self._look_ahead(self._unplanned())
        return batches, time.perf_counter() - started

    def passed_over(self) -> Tally:
        """What was passed over in the steps taken so far."""
        return self._tally(self.cursor)

    def close(self) -> None:
        """End the reader threads; one that is blocked is left to die with the process."""
        self._closed = True
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _taken(self, occurrence: int, future: Future[EncodedClip]) -> EncodedClip:
        if not self._threads:
            return self._clips.clip(occurrence)
        try:
            return future.result(timeout=self._patience_s)
        except FutureTimeout:
            if future.done():
                raise
            sample = self._name(occurrence)
            raise SolarError(
                "data.reader-blocked",
                f"a reader did not give sample {sample} within {self._patience_s:g} s",
                where=sample,
                why="the disk, the network or a decoder does not answer",
                fixes=[
                    "look at the disk or store the shards lie on",
                    "solarwm data validate INDEX",
                ],
                context={"occurrence": occurrence, "sample_id": sample},
            ) from None

    def _plan(self) -> None:
        while len(self._planned) < self._ahead:
            planned = self._next()
            self._planned.append(planned)
            for occurrence, future in zip(planned.occurrences, planned.futures, strict=True):
                self._wanted.put((occurrence, future))

    def _unplanned(self) -> Iterator[int]:
        """The occurrences of this rank that no reader was asked for yet, without end."""
        micro, first = self._micro, self._first
        while True:
            yield from (first + slot for slot in self._slots(micro))
            micro += 1
            if micro == self._accumulation:
                micro, first = 0, first + self._global_batch_size

    def _slots(self, micro: int) -> tuple[int, ...]:
        return slots_of(self._place, micro=micro, micro_batch_size=self._micro_batch_size)

    def _next(self) -> _Planned:
        slots = self._slots(self._micro)
        occurrences = tuple(self._first + slot for slot in slots)
        self._micro += 1
        if self._micro == self._accumulation:
            self._micro, self._first = 0, self._first + self._global_batch_size
        return _Planned(slots, occurrences, tuple(Future() for _ in slots))

    def _work(self) -> None:
        while (item := self._wanted.get()) is not None and not self._closed:
            occurrence, future = item
            try:
                future.set_result(self._clips.clip(occurrence))
            except BaseException as error:
                future.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Planned:
    slots: tuple[int, ...]
    occurrences: tuple[int, ...]
    futures: tuple[Future[EncodedClip], ...]
