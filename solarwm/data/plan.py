"""The `published` order: sample plans equal, draw for draw, to those of the published sampler.

Bound to its topology: every logical data-parallel rank and loader worker is a reader with its own
Mersenne-Twister stream, seeded once and never again. Plans are streamed, not listed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2s, sha256
from itertools import groupby
from typing import TypeVar

from solarwm.data.index import Index
from solarwm.data.rows import Row
from solarwm.data.windows import frame_offsets
from solarwm.errors.types import SolarError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What the published sampler is told. `fps` 0 takes frames one by one."""

    seed: int
    frames: int
    start: str = "first"
    """`random`, `fixed` (the row's start_frame) or `first` (0)."""
    fps: float = 0.0
    shuffle_buffer: int = 4096
    partition: str = "global_occurrence"
    """`global_occurrence` or `node_shard`."""
    scope: str = "complete"
    """`complete`, or `collection_relative`: what of a shard key decides its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One logical data-parallel rank and loader worker; sequence-parallel peers are one reader."""

    dp_rank: int = 0
    dp_world: int = 1
    node: int = 0
    num_nodes: int = 1
    local_dp_rank: int = 0
    local_dp_world: int = 1
    worker: int = 0
    num_workers: int = 1

    @classmethod
    def of_launch(
        cls,
        *,
        world_rank: int,
        world_size: int,
        local_rank: int,
        local_world_size: int,
        sequence_parallel_size: int = 1,
        worker: int = 0,
        num_workers: int = 1,
    ) -> Reader:
        """The reader of a launched process; sequence-parallel groups never span nodes."""
        if world_size % sequence_parallel_size or local_world_size % sequence_parallel_size:
            raise ValueError("sequence-parallel groups must not span nodes")
        return cls(
            dp_rank=world_rank // sequence_parallel_size,
            dp_world=world_size // sequence_parallel_size,
            node=world_rank // local_world_size,
            num_nodes=world_size // local_world_size,
            local_dp_rank=local_rank // sequence_parallel_size,
            local_dp_world=local_world_size // sequence_parallel_size,
            worker=worker,
            num_workers=num_workers,
        )

    @property
    def place(self) -> tuple[int, int]:
        """(which, of how many) readers of the whole job."""
        return self.dp_rank * self.num_workers + self.worker, self.dp_world * self.num_workers

    @property
    def local_place(self) -> tuple[int, int]:
        """(which, of how many) readers of this node."""
        which = self.local_dp_rank * self.num_workers + self.worker
        return which, self.local_dp_world * self.num_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlan:
    """One sample as a reader will take it."""

    sample_id: str
    key: str
    shard: str
    row_ordinal: int
    repeat: int
    epoch: int
    start_frame: int
    source_frame_indices: tuple[int, ...]
    reader_rank: int
    worker: int


class PublishedOrder:
    """The plans of one reader; epochs are taken in turn, since the random stream runs on."""

    def __init__(self, index: Index, settings: PlanSettings, reader: Reader) -> None:
        self._index = index
        self._settings = settings
        self._reader = reader
        self.rng = random.Random(settings.seed + 100003 * reader.place[0])

    def epoch(self, epoch: int) -> Iterator[SamplePlan]:
        """The plans of one epoch.

        Raises SolarError `index.too-few-frames` or `data.empty-reader` (exit 3).
        """
        by_node = self._settings.partition == "node_shard"
        emitted = False
        for row, repeat in self._node_shard(epoch) if by_node else self._global():
            emitted = True
            yield self._plan(row, repeat, epoch)
        if not emitted:
            which, of = self._reader.place
            raise SolarError(
                "data.empty-reader",
                f"reader {which} of {of} has no sample in epoch {epoch}",
                where=str(self._index.path),
                why=f"{len(self._index)} rows in {len({row.shard for row in self._index.rows})} "
                f"shards do not reach every reader with partition {self._settings.partition}",
                fixes=["set data.order: indexed", "use fewer ranks or loader workers"],
            )

    def _global(self) -> Iterator[tuple[Row, int]]:
        which, of = self._reader.place
        every = enumerate(_occurrences(self._index.rows))
        taken = (occurrence for place, occurrence in every if place % of == which)
        if self._settings.shuffle_buffer == 1:
            return taken
        return _buffered(taken, self._settings.shuffle_buffer, self.rng)

    def _node_shard(self, epoch: int) -> Iterator[tuple[Row, int]]:
        which, of = self._reader.local_place
        node, seed = self._reader.node, self._settings.seed
        group_rng = random.Random(seed + 1000003 * node + 1000000007 * epoch)
        cursor = 0
        for group in _buffered(self._owned_groups(epoch), self._settings.shuffle_buffer, group_rng):
            taken: list[tuple[Row, int]] = []
            for occurrence in _occurrences(group):
                if cursor % of == which:
                    taken.append(occurrence)
                cursor += 1
            _shuffle(taken, self.rng)
            yield from taken

    def _owned_groups(self, epoch: int) -> Iterator[list[Row]]:
        for shard, rows in groupby(self._index.rows, key=lambda row: row.shard):
            owner = _owner(shard, self._settings, self._reader.num_nodes, epoch)
            if owner == self._reader.node:
                yield list(rows)

    def _plan(self, row: Row, repeat: int, epoch: int) -> SamplePlan:
        settings = self._settings
        offsets = frame_offsets(settings.frames, source_fps=row.fps, output_fps=settings.fps)
        last = offsets[-1]
        start = 0
        if settings.start == "random" and row.num_frames > last:
            start = _below(row.num_frames - last, self.rng)
        elif settings.start == "fixed":
            start = row.start_frame or 0
        if start + last >= row.num_frames:
            raise SolarError(
                "index.too-few-frames",
                f"sample {row.sample_id!r} is too short",
                where=f"{self._index.path}: row {row.ordinal + 1}",
                why=f"{settings.frames} frames from {start} need {start + last + 1} source frames, "
                f"the row has {row.num_frames}",
                context={"sample_id": row.sample_id, "row": row.ordinal + 1},
            )
        return SamplePlan(
            sample_id=row.sample_id,
            key=row.key,
            shard=row.shard,
            row_ordinal=row.ordinal,
            repeat=repeat,
            epoch=epoch,
            start_frame=start,
            source_frame_indices=tuple(start + offset for offset in offsets),
            reader_rank=self._reader.dp_rank,
            worker=self._reader.worker,
        )


def owned_counts(
    index: Index, settings: PlanSettings, num_nodes: int, epoch: int
) -> dict[int, int]:
    """Virtual occurrences each node owns in an epoch under `node_shard`; nodes with none absent."""
    counts: dict[int, int] = {}
    for shard, rows in groupby(index.rows, key=lambda row: row.shard):
        node = _owner(shard, settings, num_nodes, epoch)
        counts[node] = counts.get(node, 0) + sum(row.epoch_repeats for row in rows)
    return counts


class PlanFingerprint:
    """The published digest of a run of plans, built up plan by plan."""

    def __init__(self) -> None:
        self._state = blake2s(b"solarwm.sample-plan.v1\n")
        self.count = 0

    def add(self, plan: SamplePlan) -> None:
        """Take in the next plan."""
        fields = (
            plan.sample_id,
            plan.key,
            plan.shard,
            plan.row_ordinal,
            plan.repeat,
            plan.epoch,
            plan.start_frame,
            ",".join(map(str, plan.source_frame_indices)),
            plan.reader_rank,
            plan.worker,
        )
        self._state.update(("\t".join(map(str, fields)) + "\n").encode())
        self.count += 1

    def hexdigest(self) -> str:
        """64 hex digits over the plans so far."""
        return self._state.hexdigest()


def _occurrences(rows: Iterable[Row]) -> Iterator[tuple[Row, int]]:
    return ((row, repeat) for row in rows for repeat in range(row.epoch_repeats))


def _owner(shard: str, settings: PlanSettings, num_nodes: int, epoch: int) -> int:
    text = f"{settings.seed}|{epoch}|{_partition_key(shard, settings.scope)}"
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % num_nodes


def _partition_key(shard: str, scope: str) -> str:
    parts = shard.split("/")
    if scope == "collection_relative" and "shards" in parts:
        last = len(parts) - 1 - parts[::-1].index("shards")
        if last > 0:
            return "/".join(parts[last - 1 :])
    return shard


def _below(bound: int, rng: random.Random) -> int:
    bits = bound.bit_length()
    value = rng.getrandbits(bits)
    while value >= bound:
        value = rng.getrandbits(bits)
    return value


def _shuffle(items: list[tuple[Row, int]], rng: random.Random) -> None:
    for high in range(len(items) - 1, 0, -1):
        low = _below(high + 1, rng)
        items[high], items[low] = items[low], items[high]


def _buffered(items: Iterable[Item], size: int, rng: random.Random) -> Iterator[Item]:
    buffer: list[Item] = []
    for item in items:
        buffer.append(item)
        if len(buffer) >= size:
            yield buffer.pop(_below(len(buffer), rng))
    while buffer:
        yield buffer.pop(_below(len(buffer), rng))
