"""Slots, cursor and the prefetching thread."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from solarwm.distributed.mesh import place_of
from solarwm.errors.types import SolarError
from solarwm.training.clips import EncodedClip
from solarwm.training.feed import Feed, slots_of


class Numbered:
    """Clips whose latents hold their occurrence; fails at one of them."""

    def __init__(self, fails_at: int = -1) -> None:
        self.fails_at = fails_at

    def clip(self, occurrence: int) -> EncodedClip:
        if occurrence == self.fails_at:
            raise KeyError(occurrence)
        return EncodedClip(
            sample_id=f"clip-{occurrence}",
            start_frame=occurrence,
            latents_FCHW=torch.full((1, 1, 1, 1), float(occurrence)),
            text_TD=torch.zeros(1, 1),
            viewmats_F44=torch.eye(4)[None],
            intrinsics_33=torch.eye(3),
        )


def _feed(
    world_rank: int, world_size: int, accumulation: int, cursor: int, clips=None, **options
) -> Feed:
    return Feed(
        clips or Numbered(),
        place=place_of(world_rank, world_size=world_size, sp_size=1),
        micro_batch_size=2,
        accumulation=accumulation,
        global_batch_size=2 * accumulation * world_size,
        cursor=cursor,
        **options,
    )


@pytest.mark.parametrize(("world_size", "accumulation"), [(1, 4), (2, 2), (4, 1)])
def test_every_topology_of_one_global_batch_covers_the_same_slots_once(
    world_size: int, accumulation: int
) -> None:
    slots = [
        slot
        for rank in range(world_size)
        for micro in range(accumulation)
        for slot in slots_of(
            place_of(rank, world_size=world_size, sp_size=1), micro=micro, micro_batch_size=2
        )
    ]
    assert sorted(slots) == list(range(8))


def test_slots_follow_the_published_formula() -> None:
    place = place_of(1, world_size=3, sp_size=1)
    assert slots_of(place, micro=2, micro_batch_size=4) == tuple(
        (2 * 3 + 1) * 4 + b for b in range(4)
    )


def test_occurrences_are_cursor_plus_slot_and_the_cursor_counts_what_was_used() -> None:
    feed = _feed(1, 2, 2, cursor=40)
    try:
        for start in (40, 48):
            assert feed.cursor == start
            batches, wait_s = feed.step_batches()
            assert wait_s >= 0
            seen = [occurrence for batch in batches for occurrence in batch.occurrences]
            assert seen == [start + 2, start + 3, start + 6, start + 7]
            assert batches[0].latents_BFCHW.flatten().tolist() == [start + 2, start + 3]
            assert batches[0].sample_ids == (f"clip-{start + 2}", f"clip-{start + 3}")
        time.sleep(0.05)
        assert feed.cursor == 56
    finally:
        feed.close()


def test_a_fault_of_the_preparing_thread_is_raised_where_the_batch_is_wanted() -> None:
    feed = _feed(0, 1, 1, cursor=0, clips=Numbered(fails_at=3))
    try:
        feed.step_batches()
        with pytest.raises(KeyError):
            feed.step_batches()
    finally:
        feed.close()


def test_closing_ends_the_threads() -> None:
    feed = _feed(0, 1, 1, cursor=0)
    time.sleep(0.05)
    feed.close()
    assert not any(thread.is_alive() for thread in feed._threads)


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_the_number_of_workers_never_changes_the_order(workers: int) -> None:
    class Uneven(Numbered):
        def clip(self, occurrence: int) -> EncodedClip:
            time.sleep(0.002 * (occurrence * 7 % 5))
            return super().clip(occurrence)

    feed = _feed(1, 2, 2, cursor=8, clips=Uneven(), workers=workers)
    try:
        seen = [
            occurrence
            for _ in range(6)
            for batch in feed.step_batches()[0]
            for occurrence in batch.occurrences
        ]
    finally:
        feed.close()
    assert seen == [8 + 8 * step + slot for step in range(6) for slot in (2, 3, 6, 7)]


def test_a_blocked_reader_is_told_with_its_sample() -> None:
    released = threading.Event()

    class Blocked(Numbered):
        def clip(self, occurrence: int) -> EncodedClip:
            if occurrence == 5:
                released.wait(30)
            return super().clip(occurrence)

    feed = _feed(0, 1, 1, cursor=4, clips=Blocked(), patience_s=0.2, name=lambda k: f"clip-{k}")
    try:
        with pytest.raises(SolarError, match="clip-5") as caught:
            feed.step_batches()
        assert (caught.value.code, caught.value.exit_code) == ("data.reader-blocked", 5)
    finally:
        released.set()
        feed.close()
