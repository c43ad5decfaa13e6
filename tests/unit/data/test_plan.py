"""The published order beyond the golden files: readers of a launch, readers with nothing."""

from __future__ import annotations

import random

import pytest

from solarwm.data.index import read_index
from solarwm.data.plan import (
    PlanSettings,
    PublishedOrder,
    Reader,
    _below,
    _shuffle,
)
from solarwm.data.shares import reader_shares, summary
from solarwm.errors.types import SolarError


def test_draws_equal_those_of_the_standard_library() -> None:
    ours, theirs = random.Random(9), random.Random(9)
    assert [_below(n, ours) for n in range(1, 200)] == [theirs.randrange(n) for n in range(1, 200)]
    mine, other = [(n, 0) for n in range(40)], [(n, 0) for n in range(40)]
    _shuffle(mine, ours)
    theirs.shuffle(other)
    assert mine == other


def test_sequence_parallel_peers_are_one_reader() -> None:
    peers = [
        Reader.of_launch(
            world_rank=rank,
            world_size=16,
            local_rank=rank % 8,
            local_world_size=8,
            sequence_parallel_size=4,
            worker=1,
            num_workers=2,
        )
        for rank in (12, 13, 14, 15)
    ]
    assert len(set(peers)) == 1
    assert peers[0].place == (7, 8)
    assert peers[0].local_place == (3, 4)
    assert (peers[0].node, peers[0].num_nodes) == (1, 2)


def test_groups_across_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="span nodes"):
        Reader.of_launch(
            world_rank=0, world_size=6, local_rank=0, local_world_size=3, sequence_parallel_size=2
        )


def test_readers_share_the_occurrences_without_loss(world) -> None:
    index = read_index(
        world.index(*(world.row(f"c{n}", epoch_repeats=1 + n % 2) for n in range(11)))
    )
    settings = PlanSettings(seed=1, frames=5, shuffle_buffer=4, start="random")
    found = [
        (plan.sample_id, plan.repeat)
        for rank in range(3)
        for worker in range(2)
        for plan in PublishedOrder(
            index, settings, Reader(dp_rank=rank, dp_world=3, worker=worker, num_workers=2)
        ).epoch(0)
    ]
    assert len(found) == len(set(found)) == index.num_occurrences


def test_a_reader_without_a_sample_is_an_error_with_a_way_out(world) -> None:
    index = read_index(world.index(world.row("a"), world.row("b")))
    order = PublishedOrder(index, PlanSettings(seed=0, frames=5), Reader(dp_rank=3, dp_world=4))
    with pytest.raises(SolarError) as caught:
        list(order.epoch(0))
    assert (caught.value.code, caught.value.exit_code) == ("data.empty-reader", 3)
    assert any("indexed" in fix for fix in caught.value.fixes)


def test_a_short_row_stops_planning(world) -> None:
    index = read_index(world.index(world.row("a", num_frames=80)))
    with pytest.raises(SolarError) as caught:
        list(PublishedOrder(index, PlanSettings(seed=0, frames=81), Reader()).epoch(0))
    assert caught.value.code == "index.too-few-frames"
    assert caught.value.context["sample_id"] == "demo/a"


@pytest.mark.parametrize("partition", ["global_occurrence", "node_shard"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_shares_count_what_the_readers_take(world, partition, epoch) -> None:
    index = read_index(
        world.index(
            *(
                world.row(f"c{n}", epoch_repeats=1 + n % 2, shard=f"s/{n // 2}.tar")
                for n in range(6)
            )
        )
    )
    settings = PlanSettings(seed=3, frames=5, partition=partition)
    shares = reader_shares(
        index, settings, world_size=6, local_world_size=2, num_workers=2, epoch=epoch
    )
    for share in shares:
        reader = Reader.of_launch(
            world_rank=share.dp_rank,
            world_size=6,
            local_rank=share.dp_rank % 2,
            local_world_size=2,
            worker=share.worker,
            num_workers=2,
        )
        plans = PublishedOrder(index, settings, reader).epoch(epoch)
        if share.samples:
            assert len(list(plans)) == share.samples
        else:
            with pytest.raises(SolarError, match="no sample in epoch"):
                list(plans)
    told = summary(shares)
    assert told["samples"] == index.num_occurrences
    assert len(told["empty"]) == sum(share.samples == 0 for share in shares)
