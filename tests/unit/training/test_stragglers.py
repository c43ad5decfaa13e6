"""The rank that others wait for is named, and told once when it stays slow."""

from __future__ import annotations

import torch

from solarwm.training.stragglers import PATIENCE, Pace, StragglerWatch, added, pace_of

EVEN = Pace(seconds=(1.0, 1.1, 1.0, 1.0), data_wait_s=(0.0, 0.0, 0.0, 0.0))


def slow(rank: int, *, data_wait_s: float = 0.0) -> Pace:
    waits = [0.0] * 4
    waits[rank] = data_wait_s
    return Pace(
        seconds=tuple(3.0 if index == rank else 1.0 for index in range(4)),
        data_wait_s=tuple(waits),
    )


def test_a_slow_rank_is_told_once_until_it_was_quick_again() -> None:
    watch = StragglerWatch()
    told = [watch.after(slow(2)) for _ in range(3 * PATIENCE)]
    assert [index for index, fields in enumerate(told) if fields] == [PATIENCE - 1]
    assert told[PATIENCE - 1] == {
        "slowest_rank": 2,
        "slowest_rank_s": 3.0,
        "median_rank_s": 1.0,
        "slowest_rank_data_wait_s": 0.0,
        "steps_in_a_row": PATIENCE,
        "waits_for": "compute",
    }
    assert watch.after(EVEN) is None
    again = [watch.after(slow(2, data_wait_s=2.5)) for _ in range(PATIENCE)]
    assert [fields["waits_for"] for fields in again if fields] == ["data"]


def test_ranks_that_are_slow_in_turn_and_steps_of_no_length_are_not_told() -> None:
    watch = StragglerWatch()
    assert not any(watch.after(slow(step % 4)) for step in range(40))
    blink = Pace(seconds=(0.001, 0.01), data_wait_s=(0.0, 0.0))
    assert not any(watch.after(blink) for _ in range(2 * PATIENCE))


def test_the_updates_of_a_step_are_added_by_rank() -> None:
    first = pace_of(torch.tensor([[1.0, 0.5], [2.0, 0.0]]))
    both = added([first, pace_of(torch.tensor([[4.0, 0.0], [1.0, 0.25]]))])
    assert both == Pace(seconds=(5.0, 3.0), data_wait_s=(0.5, 0.25))
    assert (first.slowest_rank, both.slowest_rank) == (1, 0)
