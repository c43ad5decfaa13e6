"""The `published` order as a function of the occurrence, for one topology.

Occurrence k of a run is slot k mod G of step k div G (G = global batch). Its slot tells dp rank,
microbatch and row; microbatch m of a rank comes from loader worker m mod workers, as a loader deals
them; and each worker is a reader with its own stream of plans. Streams run forwards only, so going
back to an earlier occurrence of a reader walks it from the start again (about 10 us a plan).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from solarwm.data.index import Index
from solarwm.data.order import IndexedOrder, Occurrence
from solarwm.data.plan import PlanSettings, PublishedOrder, Reader
from solarwm.data.rows import Row

_KEPT = 4096
"""Plans kept per reader, for the occurrences asked again."""
NEXT_PLANS = 8
"""Plans of the same worker tried in place of a refused one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How ranks, loader workers and microbatches divide a global batch."""

    dp_world: int
    num_nodes: int
    micro_batch_size: int
    grad_accum: int
    num_workers: int

    @property
    def global_batch_size(self) -> int:
        """Samples of one optimizer update."""
        return self.dp_world * self.micro_batch_size * self.grad_accum


class PublishedWalk:
    """Occurrences of the published order; safe to share between threads.

    No workers read as one worker does. Raises what the plans raise (exit 3).
    """

    def __init__(self, index: Index, settings: PlanSettings, cut: Cut) -> None:
        self.seed = settings.seed
        self.cut = cut
        self._index = index
        self._settings = settings
        self._spare = IndexedOrder.of(index, settings.seed)
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._lock = threading.Lock()

    @property
    def num_occurrences_per_epoch(self) -> int:
        """Virtual occurrences of one epoch, over all readers."""
        return self._spare.num_occurrences_per_epoch

    def require_every_reader(self) -> None:
        """Refuse (`data.empty-reader`) an index that leaves a reader without a sample.

        Occurrences are dealt in turn, so the last reader of a node (or of the job) is the first to
        go without.
        """
        by_node = self._settings.partition == "node_shard"
        local_world = self.cut.dp_world // self.cut.num_nodes
        last_ranks = range(local_world - 1, self.cut.dp_world, local_world)
        for dp_rank in last_ranks if by_node else (self.cut.dp_world - 1,):
            next(self._order(dp_rank, max(1, self.cut.num_workers) - 1).epoch(0))

    def reader(self, k: int) -> tuple[int, int, int]:
        """(dp rank, worker, place in that worker's stream) of occurrence k."""
        cut = self.cut
        step, slot = divmod(k, cut.global_batch_size)
        block, row = divmod(slot, cut.micro_batch_size)
        micro, dp_rank = divmod(block, cut.dp_world)
        workers = max(1, cut.num_workers)
        turn, worker = divmod(step * cut.grad_accum + micro, workers)
        return dp_rank, worker, turn * cut.micro_batch_size + row

    def occurrence(self, k: int) -> Occurrence:
        """The row, repeat and epoch of occurrence k."""
        place = self._place(k)
        return Occurrence(place.epoch, place.row_ordinal, place.repeat)

    def substitute(self, k: int, attempt: int) -> Occurrence:
        """What is used in place of a refused occurrence k: the next plans of the same worker, and
        when `NEXT_PLANS` of them are refused too, keyed ones of the `indexed` order."""
        if attempt >= NEXT_PLANS:
            return self._spare.substitute(k, attempt)
        place = self._place(k, ahead=attempt + 1)
        return Occurrence(place.epoch, place.row_ordinal, place.repeat)

    def start_frame(
        self,
        k: int,
        row: Row,
        frames: int,
        *,
        fps: float = 0.0,
        random_start: bool = True,
        attempt: int | None = None,
    ) -> int:
        """Where the clip of occurrence k starts, as its plan drew it."""
        if attempt is None or attempt < NEXT_PLANS:
            return self._place(k, ahead=0 if attempt is None else attempt + 1).start_frame
        return self._spare.start_frame(
            k, row, frames, fps=fps, random_start=random_start, attempt=attempt
        )

    def _place(self, k: int, *, ahead: int = 0) -> _Place:
        dp_rank, worker, place = self.reader(k)
        place += ahead
        with self._lock:
            stream = self._streams.get((dp_rank, worker))
            if stream is None or place < stream.oldest:
                stream = _Stream(self._order(dp_rank, worker))
                self._streams[dp_rank, worker] = stream
            return stream.at(place)

    def _order(self, dp_rank: int, worker: int) -> PublishedOrder:
        return PublishedOrder(self._index, self._settings, self._reader(dp_rank, worker))

    def _reader(self, dp_rank: int, worker: int) -> Reader:
        local_world = self.cut.dp_world // self.cut.num_nodes
        return Reader(
            dp_rank=dp_rank,
            dp_world=self.cut.dp_world,
            node=dp_rank // local_world,
            num_nodes=self.cut.num_nodes,
            local_dp_rank=dp_rank % local_world,
            local_dp_world=local_world,
            worker=worker,
            num_workers=max(1, self.cut.num_workers),
        )


@dataclass(frozen=True, slots=True)
class _Place:
    epoch: int
    row_ordinal: int
    repeat: int
    start_frame: int


class _Stream:
    def __init__(self, order: PublishedOrder) -> None:
        self._plans = self._endless(order)
        self._kept: OrderedDict[int, _Place] = OrderedDict()
        self._next = 0

    @staticmethod
    def _endless(order: PublishedOrder) -> Iterator[_Place]:
        for epoch in count():
            for plan in order.epoch(epoch):
                yield _Place(epoch, plan.row_ordinal, plan.repeat, plan.start_frame)

    @property
    def oldest(self) -> int:
        return next(iter(self._kept), self._next)

    def at(self, place: int) -> _Place:
        while self._next <= place:
            self._kept[self._next] = next(self._plans)
            self._next += 1
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[place]
