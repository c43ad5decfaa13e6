"""The `indexed` order: which occurrence is consumed when, known without any list, worker or rank.

Every epoch is a keyed permutation of its virtual occurrences. Occurrence k of a run is a pure
function of (seed, k), so a resumed run, another world size or another worker count sees the same
samples (docs/decisions/0002-keyed-randomness.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from solarwm.data.draws import keyed_below, keyed_seed
from solarwm.data.index import Index
from solarwm.data.rows import Row
from solarwm.data.windows import frame_offsets
from solarwm.errors.types import SolarError

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One use of one row: `repeat` counts the uses of the row within its epoch."""

    epoch: int
    row_ordinal: int
    repeat: int


class IndexedOrder:
    """Random access to the endless order of occurrences of an index; a few bytes of state beside
    the repeats.
    """

    def __init__(
        self, seed: int, repeats: Iterable[int] = (), *, ends: Sequence[int] | None = None
    ) -> None:
        """`repeats` of every row, or their running sums as `ends`."""
        self.seed = seed
        self._ends = tuple(accumulate(repeats)) if ends is None else ends
        if not len(self._ends):
            raise ValueError("an order needs at least one row")

    @classmethod
    def of(cls, index: Index, seed: int) -> IndexedOrder:
        """The order of an index."""
        return cls(seed, ends=index.ends)

    @property
    def num_occurrences_per_epoch(self) -> int:
        """Virtual occurrences of one epoch."""
        return int(self._ends[-1])

    def occurrence(self, k: int) -> Occurrence:
        """Occurrence k, counted from the start of training; every epoch holds each (row, repeat)
        once.
        """
        epoch, place = divmod(k, self.num_occurrences_per_epoch)
        return self._at(
            epoch, permuted(place, self.num_occurrences_per_epoch, key=f"{self.seed}|{epoch}")
        )

    def substitute(self, k: int, attempt: int) -> Occurrence:
        """What is used in place of a skipped occurrence k; `attempt` counts from 0."""
        count = self.num_occurrences_per_epoch
        position = keyed_below(count, seed=self.seed, purpose="substitute", step=k, slot=attempt)
        return self._at(k // count, position)

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
        """Where the clip of occurrence k starts in the source video, in source frames.

        With `random_start` a keyed draw over every start that fits; else the row's own start, or 0.
        `fps` above 0 re-times as in `frame_offsets`; `attempt` names the substitute of a skipped
        occurrence. Raises SolarError `index.no-frame-count` or `index.too-few-frames` (exit 3).
        """
        last = frame_offsets(frames, source_fps=row.fps, output_fps=fps)[-1]
        _check_length(row, frames, last)
        if not random_start:
            start = row.start_frame or 0
            if start + last >= row.num_frames:
                raise _too_few(row, frames, start + last + 1)
            return start
        slot = 0 if attempt is None else attempt + 1
        return keyed_below(
            row.num_frames - last, seed=self.seed, purpose="start", step=k, slot=slot
        )

    def _at(self, epoch: int, position: int) -> Occurrence:
        ordinal = bisect_right(self._ends, position)
        before = int(self._ends[ordinal - 1]) if ordinal else 0
        return Occurrence(epoch, ordinal, position - before)


def permuted(place: int, count: int, *, key: str) -> int:
    """The image of `place` under a permutation of 0..count-1 that `key` fixes.

    A balanced Feistel network of 8 rounds over the next power of four, walked until the value falls
    below `count`.
    """
    if not 0 <= place < count:
        raise ValueError(f"place {place} is outside 0..{count - 1}")
    half_bits = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    hashed_key = blake2b(f"solarwm.order.v1|{key}".encode(), digest_size=32).digest()
    value = place
    while True:
        left, right = value >> half_bits, value & mask
        for round_index in range(_ROUNDS):
            text = round_index.to_bytes(1, "little") + right.to_bytes(8, "little")
            digest = blake2b(text, digest_size=8, key=hashed_key).digest()
            left, right = right, left ^ (int.from_bytes(digest, "little") & mask)
        value = left << half_bits | right
        if value < count:
            return value


def subset(count: int, size: int, *, seed: int, purpose: str) -> tuple[int, ...]:
    """`size` different ordinals out of 0..count-1, fixed by (seed, purpose), in drawn order."""
    if size > count:
        raise ValueError(f"{size} of {count} rows cannot be chosen")
    key = f"{keyed_seed(seed, purpose, 0, 0)}|subset"
    return tuple(permuted(place, count, key=key) for place in range(size))


def _check_length(row: Row, frames: int, last: int) -> None:
    if row.num_frames <= 0:
        raise SolarError(
            "index.no-frame-count",
            f"the index does not tell the length of sample {row.sample_id!r}",
            where=f"row {row.ordinal + 1}",
            why="neither the row nor its inline manifest has num_frames",
            context={"sample_id": row.sample_id, "field": "num_frames"},
        )
    if row.num_frames <= last:
        raise _too_few(row, frames, last + 1)


def _too_few(row: Row, frames: int, needed: int) -> SolarError:
    return SolarError(
        "index.too-few-frames",
        f"sample {row.sample_id!r} is too short",
        where=f"row {row.ordinal + 1}",
        why=f"a clip of {frames} frames needs source frames 0..{needed - 1}, "
        f"the row has {row.num_frames} "
        f"(source fps {row.fps:g})",
        fixes=["set data.pixel_frames to a shorter clip", "take the row out of the index"],
        context={
            "sample_id": row.sample_id,
            "field": "num_frames",
            "needed": needed,
            "found": row.num_frames,
        },
    )
