"""Microbatches for one rank, made ahead by one thread; the wait for them is measured.

Slot i of a step whose cursor is c holds occurrence c + i of the data order; dp_rank d, micro m, row
b fill slot (m * dp_world + d) * B + b. The cursor counts consumed occurrences, whatever has been
prefetched.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from solarwm.data.tensors import LatentBatch
from solarwm.distributed.mesh import MeshPlace
from solarwm.training.clips import EncodedClip


class ClipMaker(Protocol):
    """Gives the clip of an occurrence; safe to call from the prefetching thread."""

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
    """The microbatches of this rank from a cursor on, in order, without end."""

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
        on_thread_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.cursor = cursor
        self._clips = clips
        self._place = place
        self._micro_batch_size = micro_batch_size
        self._accumulation = accumulation
        self._global_batch_size = global_batch_size
        self._ready: queue.Queue[LatentBatch | BaseException] = queue.Queue(maxsize=max(1, depth))
        self._closed = threading.Event()
        self._on_thread_start = on_thread_start
        self._thread = threading.Thread(target=self._fill, name="solarwm-feed", daemon=True)
        self._thread.start()

    def step_batches(self) -> tuple[list[LatentBatch], float]:
        """The microbatches of the next optimizer step and the seconds waited for them.

        Raises whatever the preparing thread ran into.
        """
        started = time.perf_counter()
        batches = []
        for _ in range(self._accumulation):
            item = self._ready.get()
            if isinstance(item, BaseException):
                raise item
            batches.append(item)
        self.cursor += self._global_batch_size
        return batches, time.perf_counter() - started

    def close(self) -> None:
        """End the preparing thread."""
        self._closed.set()
        while True:
            try:
                self._ready.get_nowait()
            except queue.Empty:
                break
        self._thread.join(timeout=5.0)

    def _fill(self) -> None:
        self._on_thread_start()
        first = self.cursor
        try:
            while not self._closed.is_set():
                for micro in range(self._accumulation):
                    slots = slots_of(
                        self._place, micro=micro, micro_batch_size=self._micro_batch_size
                    )
                    occurrences = [first + slot for slot in slots]
                    clips = [self._clips.clip(occurrence) for occurrence in occurrences]
                    self._put(collate(clips, slots=slots, occurrences=occurrences))
                first += self._global_batch_size
        except BaseException as error:
            self._put(error)

    def _put(self, item: LatentBatch | BaseException) -> None:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=0.25)
            except queue.Full:
                continue
            return
