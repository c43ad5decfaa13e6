"""The indexed order: a permutation an epoch, the same for everybody, reached anywhere at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from solarwm.data.draws import keyed_seed
from solarwm.data.index import read_index
from solarwm.data.order import IndexedOrder, Occurrence, permuted, subset
from solarwm.data.plan import PlanSettings
from solarwm.data.published_walk import Cut, PublishedWalk
from solarwm.data.rows import Row
from solarwm.errors.types import SolarError

PINNED = [2, 1, 4, 7, 0, 1, 5, 7, 6, 3, 3, 5]
"""The first epoch of seed 42; a change breaks the resume of every run."""


def row(**changes) -> Row:
    given = {"ordinal": 0, "sample_id": "a", "key": "k", "shard": "s.tar", "num_frames": 100}
    return Row(**(given | changes))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 64, 100, 1000])
def test_every_key_permutes_every_size(count) -> None:
    for key in ("a", "b"):
        found = [permuted(place, count, key=key) for place in range(count)]
        assert sorted(found) == list(range(count))


def test_a_place_outside_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.4"):
        permuted(5, 5, key="a")


def test_small_permutations_are_spread_evenly() -> None:
    count, tries = 5, 2000
    seen = [Counter(permuted(p, count, key=str(k)) for k in range(tries)) for p in range(count)]
    for counter in seen:
        assert set(counter) == set(range(count))
        # Six standard deviations of a binomial with p = 1/5.
        assert all(
            abs(hits - tries / count) < 6 * (tries * 0.16) ** 0.5 for hits in counter.values()
        )


def test_every_epoch_holds_every_repeat_once_and_epochs_differ() -> None:
    order = IndexedOrder(7, [1, 3, 2])
    assert order.num_occurrences_per_epoch == 6
    epochs = [[order.occurrence(6 * epoch + place) for place in range(6)] for epoch in range(4)]
    whole = {(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)}
    for number, epoch in enumerate(epochs):
        assert {(found.row_ordinal, found.repeat) for found in epoch} == whole
        assert {found.epoch for found in epoch} == {number}
    shown = {tuple((f.row_ordinal, f.repeat) for f in epoch) for epoch in epochs}
    assert len(shown) > 1


def test_another_seed_is_another_order() -> None:
    orders = [
        [IndexedOrder(s, [1] * 50).occurrence(k).row_ordinal for k in range(50)] for s in (1, 2)
    ]
    assert orders[0] != orders[1]


def test_far_places_are_reached_without_walking() -> None:
    order = IndexedOrder(3, [1] * 1_000)
    assert order.occurrence(10**12).epoch == 10**9


def test_the_order_is_fixed_for_all_time_and_every_process() -> None:
    code = (
        "from solarwm.data.order import IndexedOrder as O;"
        "print([O(42, [1, 2] * 4).occurrence(k).row_ordinal for k in range(12)])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    here = [IndexedOrder(42, [1, 2] * 4).occurrence(k).row_ordinal for k in range(12)]
    assert found.strip() == str(here)
    assert here == PINNED


def test_draws_equal_those_of_the_model_room() -> None:
    from solarwm.nn.random import keyed_seed as tensors_seed

    for key in ((0, "start", 0, 0), (-5, "substitute", 10**9, 3)):
        assert keyed_seed(*key) == tensors_seed(*key)


def test_substitutes_come_from_the_same_epoch_and_vary_with_the_attempt() -> None:
    order = IndexedOrder(1, [1] * 40)
    found = [order.substitute(95, attempt) for attempt in range(20)]
    assert {occurrence.epoch for occurrence in found} == {2}
    assert len({occurrence.row_ordinal for occurrence in found}) > 5
    assert found == [IndexedOrder(1, [1] * 40).substitute(95, attempt) for attempt in range(20)]


def test_random_starts_cover_every_place_that_fits_and_no_other() -> None:
    order = IndexedOrder(0, [1])
    starts = {order.start_frame(k, row(num_frames=12), 9) for k in range(200)}
    assert starts == {0, 1, 2, 3}
    assert {order.start_frame(k, row(num_frames=9), 9) for k in range(20)} == {0}


def test_retimed_clips_need_more_source_frames() -> None:
    order = IndexedOrder(0, [1])
    fast = row(num_frames=18, fps=32.0)
    assert {order.start_frame(k, fast, 9, fps=16.0) for k in range(50)} == {0, 1}


def test_a_fixed_start_is_the_rows_own() -> None:
    order = IndexedOrder(0, [1])
    assert order.start_frame(5, row(start_frame=7), 9, random_start=False) == 7
    assert order.start_frame(5, row(), 9, random_start=False) == 0


@pytest.mark.parametrize(
    ("given", "frames", "code"),
    [
        ({"num_frames": 80}, 81, "index.too-few-frames"),
        ({"num_frames": 0}, 9, "index.no-frame-count"),
        ({"num_frames": 20, "start_frame": 12}, 9, "index.too-few-frames"),
    ],
)
def test_a_clip_that_does_not_fit_names_the_sample(given, frames, code) -> None:
    with pytest.raises(SolarError) as caught:
        IndexedOrder(0, [1]).start_frame(0, row(**given), frames, random_start=False)
    assert (caught.value.code, caught.value.exit_code) == (code, 3)
    assert caught.value.context["sample_id"] == "a"


def test_a_subset_has_no_repeats_and_is_fixed() -> None:
    found = subset(50, 20, seed=1, purpose="validation")
    assert len(set(found)) == 20
    assert found == subset(50, 20, seed=1, purpose="validation")
    assert found != subset(50, 20, seed=2, purpose="validation")
    with pytest.raises(ValueError, match="21 of 20"):
        subset(20, 21, seed=1, purpose="validation")


@pytest.mark.parametrize("partition", ["global_occurrence", "node_shard"])
def test_c13_repeats_and_windows_come_in_one_order_for_0_1_and_4_workers(
    tmp_path, partition
) -> None:
    """The indexed order asks nobody how many workers read; the published one is dealt in turn."""
    rows = [
        {
            "sample_id": f"s/{clip}/w{window}",
            "key": f"k{clip}w{window}",
            "shard": f"x/{clip % 3}.tar",
            "num_frames": 200,
            "start_frame": 20 * window,
            "epoch_repeats": 1 + clip % 3,
        }
        for clip in range(7)
        for window in range(3)
    ]
    path = tmp_path / "i.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = read_index(path)
    total = index.num_occurrences

    def taken(workers: int) -> list[tuple[str, int, int]]:
        """What threads that race for the next occurrence put at each place."""
        order = IndexedOrder.of(index, 5)

        def one(k: int) -> tuple[str, int, int]:
            place = order.occurrence(k)
            row = index.rows[place.row_ordinal]
            return row.sample_id, place.repeat, order.start_frame(k, row, 33, random_start=False)

        if not workers:
            return list(map(one, range(2 * total)))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(one, range(2 * total)))

    plans = [taken(workers) for workers in (0, 1, 4)]
    assert plans[0] == plans[1] == plans[2]
    expected = Counter(
        (row["sample_id"], repeat, row["start_frame"])
        for row in rows
        for repeat in range(row["epoch_repeats"])
    )
    assert Counter(plans[0][:total]) == Counter(plans[0][total:]) == expected

    settings = PlanSettings(seed=5, frames=33, start="fixed", shuffle_buffer=8, partition=partition)

    def walk(workers: int) -> PublishedWalk:
        cut = Cut(dp_world=1, num_nodes=1, micro_batch_size=1, grad_accum=1, num_workers=workers)
        return PublishedWalk(index, settings, cut)

    assert [walk(0).occurrence(k) for k in range(total)] == [
        walk(1).occurrence(k) for k in range(total)
    ]


def test_a_walk_begun_in_the_middle_of_an_epoch_goes_on_as_the_uninterrupted_one(tmp_path) -> None:
    path = tmp_path / "i.jsonl"
    path.write_text(
        "".join(
            f'{{"sample_id":"{n}","key":"k","shard":"{n // 5}.tar","num_frames":90}}\n'
            for n in range(30)
        )
    )
    index = read_index(path)
    settings = PlanSettings(seed=1, frames=33, start="random", shuffle_buffer=4)
    cut = Cut(dp_world=2, num_nodes=1, micro_batch_size=2, grad_accum=2, num_workers=2)
    whole = PublishedWalk(index, settings, cut)

    def at(walk: PublishedWalk, k: int) -> tuple[Occurrence, int]:
        place = walk.occurrence(k)
        return place, walk.start_frame(k, index.rows[place.row_ordinal], 33)

    uninterrupted = [at(whole, k) for k in range(120)]
    for first in (1, 17, 64, 95):
        resumed = PublishedWalk(index, settings, cut)
        assert [at(resumed, k) for k in range(first, 120)] == uninterrupted[first:]
