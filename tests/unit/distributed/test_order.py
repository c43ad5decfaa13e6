"""Ranks out of step are named on both sides before a collective is made; one log tells the order."""

from __future__ import annotations

import random
import threading

import pytest
import torch
import torch.distributed as dist

from solarwm.distributed.order import CollectiveLog, OrderCheck
from solarwm.errors.types import SolarError

WORLD, PAIR = ("world", (0, 1, 2)), ("ranks 0-1", (0, 1))
PROGRAM = [
    (WORLD, "gather", "weights equal", torch.zeros(2)),
    (PAIR, "exchange", "attention 0 in", torch.zeros(2, 3, 4)),
    (PAIR, "exchange", "attention 0 out", torch.zeros(2, 1, 4)),
    (WORLD, "sum", "gradients", torch.zeros(7)),
    (PAIR, "gather", "velocity", torch.zeros(5)),
    (WORLD, "sum", "gradients", torch.zeros(9)),
]


def run(programs, store, *, timeout_s: float = 5.0):
    """What each rank raised, or None; every rank is a thread."""
    raised: list[SolarError | None] = [None] * len(programs)

    def rank(world_rank: int) -> None:
        log = CollectiveLog(world_rank)
        log.check = OrderCheck(store, world_rank=world_rank, timeout_s=timeout_s)
        try:
            for (group, members), kind, label, tensor in programs[world_rank]:
                if world_rank in members:
                    log.enter(group, members, kind, label, tensor)
        except SolarError as error:
            raised[world_rank] = error

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    return raised


def test_equal_programs_pass_and_leave_little_behind():
    store = dist.HashStore()
    assert run([PROGRAM * 20] * 3, store) == [None] * 3
    assert store.num_keys() < 3 * 2 * 4


def _swaps():
    """Every swap of two neighbouring different collectives of rank 1, and every changed field."""
    for index in range(len(PROGRAM) - 1):
        changed = list(PROGRAM)
        changed[index], changed[index + 1] = changed[index + 1], changed[index]
        yield f"swap {index}", changed
    for index, (group, kind, label, tensor) in enumerate(PROGRAM):
        for name, call in (
            ("shape", (group, kind, label, tensor[..., :-1])),
            ("dtype", (group, kind, label, tensor.double())),
            ("label", (group, kind, f"{label}!", tensor)),
            ("kind", (group, "barrier", label, tensor)),
        ):
            yield f"{name} {index}", [*PROGRAM[:index], call, *PROGRAM[index + 1 :]]


@pytest.mark.parametrize(("name", "changed"), list(_swaps()), ids=lambda value: str(value)[:9])
def test_every_injected_difference_is_named_on_both_ranks(name, changed):
    del name
    programs = [
        [((group, (0, 1)), *call) for (group, _), *call in program]
        for program in (PROGRAM, changed)
    ]
    for error in run(programs, dist.HashStore()):
        assert error is not None
        assert error.code == "distributed.order-differs"
        assert error.context["world_ranks"] == [0, 1]
        for world_rank in range(2):
            assert f"rank {world_rank} is at #" in error.why


def test_a_third_rank_waits_no_longer_than_its_deadline():
    changed = [*PROGRAM[:3], (WORLD, "sum", "other", torch.zeros(7))]
    raised = run([PROGRAM, PROGRAM, changed], dist.HashStore(), timeout_s=1.0)
    assert all(error is not None for error in raised)
    assert "distributed.order-differs" in {error.code for error in raised if error}


def test_a_rank_that_never_comes_is_named_with_the_collective():
    raised = run([PROGRAM, PROGRAM[:3], PROGRAM], dist.HashStore(), timeout_s=0.5)
    assert raised[1] is None
    assert raised[0] is not None
    assert "rank 1 did not come to the collective `gradients`" in str(raised[0])


def test_the_log_names_order_and_shapes_by_one_digest_a_group():
    logs = [CollectiveLog(number) for number in range(3)]
    for (group, members), kind, label, tensor in PROGRAM:
        for log in logs[:2]:
            log.enter(group, members, kind, label, tensor)
    order = list(range(len(PROGRAM)))
    random.Random(0).shuffle(order)
    for index in order:
        (group, members), kind, label, tensor = PROGRAM[index]
        logs[2].enter(group, members, kind, label, tensor)
    assert logs[0].digest("world") == logs[1].digest("world") != logs[2].digest("world")
    assert logs[0].last == "#6 gradients"
    assert str(logs[0].recent[1]) == (
        "#1 of ranks 0-1: exchange `attention 0 in` [2, 3, 4] float32"
    )
