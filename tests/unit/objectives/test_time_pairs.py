from __future__ import annotations

import pytest
import torch

from solarwm.objectives.time_pairs import (
    CONSISTENCY,
    DIFFUSION,
    MAP,
    published_classes,
    rotated_classes,
    time_pairs,
)


@pytest.mark.parametrize(
    ("size", "counts"),
    [
        (1, (0, 0, 1)),
        (2, (1, 0, 1)),
        (3, (2, 1, 0)),
        (4, (2, 1, 1)),
        (6, (3, 2, 1)),
        (8, (4, 2, 2)),
        (256, (128, 64, 64)),
    ],
)
def test_published_counts_round_half_to_even(size, counts):
    classes = published_classes(size, 0.5, 0.25)
    assert tuple(int((classes == kind).sum()) for kind in range(3)) == counts
    assert classes.tolist() == sorted(classes.tolist())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 12])
def test_every_slot_meets_every_class_in_its_share(size):
    steps = 8 * size
    table = torch.stack([rotated_classes(step, size, 0.5, 0.25) for step in range(steps)])
    for slot in range(size):
        shares = [float((table[:, slot] == kind).double().mean()) for kind in range(3)]
        assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.13), slot
    total = [int((table == kind).sum()) for kind in range(3)]
    assert total == [4 * size * size, 2 * size * size, 2 * size * size]


@pytest.mark.parametrize("size", [4, 8, 256])
def test_rotated_counts_of_a_step_are_the_published_ones(size):
    published = sorted(published_classes(size, 0.5, 0.25).tolist())
    for step in (0, 1, 17):
        assert sorted(rotated_classes(step, size, 0.5, 0.25).tolist()) == published


def test_shares_that_leave_a_class_out_never_draw_it():
    drawn = {kind for step in range(9) for kind in rotated_classes(step, 3, 0.6, 0.4).tolist()}
    assert drawn == {DIFFUSION, CONSISTENCY}


def test_times_of_each_class():
    u1 = torch.tensor([0.7, 0.7, 0.7, 0.7, 0.7])
    u2 = torch.tensor([0.3, 0.3, 0.3, 1.0, 0.0])
    classes = torch.tensor([DIFFUSION, CONSISTENCY, MAP, MAP, MAP])
    t, r = time_pairs(u1, u2, classes)
    assert torch.equal(t, u1)
    assert r[0] == t[0]
    assert r[1] == 0
    assert torch.isclose(r[2], torch.tensor(0.21))
    assert bool(((r[2:] > 0) & (r[2:] < t[2:])).all())
