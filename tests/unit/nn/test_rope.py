from __future__ import annotations

import math

import torch

from solarwm.nn.rope import axis_pairs, cached_table, rotate, rotation_table


def test_the_released_head_splits_into_22_21_21_pairs():
    assert axis_pairs(128) == (22, 21, 21)
    assert sum(axis_pairs(32)) == 16


def test_each_pair_turns_by_its_own_axis():
    """Token (slot 5, row 1, column 2) of a 2 x 3 grid, every pair computed by hand."""
    head = 16
    table = rotation_table((4, 5), 2, 3, head)
    token = 1 * 6 + 1 * 3 + 2
    x = torch.randn(1, 12, head)
    turned = rotate(x, table)
    pairs = axis_pairs(head)
    place = [(axis, i) for axis, count in enumerate(pairs) for i in range(count)]
    for pair, (axis, i) in enumerate(place):
        angle = (5, 1, 2)[axis] * 10000.0 ** (-i / pairs[axis])
        a, b = x[0, token, 2 * pair].item(), x[0, token, 2 * pair + 1].item()
        expected = (
            a * math.cos(angle) - b * math.sin(angle),
            a * math.sin(angle) + b * math.cos(angle),
        )
        torch.testing.assert_close(
            turned[0, token, 2 * pair : 2 * pair + 2], torch.tensor(expected), atol=1e-6, rtol=0
        )


def test_all_heads_turn_alike():
    table = rotation_table((0, 1), 2, 2, 8)
    x = torch.randn(2, 8, 8)
    both = rotate(torch.cat([x, x], dim=-1), table)
    torch.testing.assert_close(both[..., :8], both[..., 8:])
    torch.testing.assert_close(both[..., :8], rotate(x, table))


def test_a_table_is_made_once_a_geometry():
    device = torch.device("cpu")
    assert cached_table((0, 1), 2, 2, 8, device) is cached_table((0, 1), 2, 2, 8, device)


def test_a_table_made_while_generating_serves_training():
    cached_table.cache_clear()
    with torch.inference_mode():
        table = cached_table((0, 1), 2, 2, 12, torch.device("cpu"))
    assert not table.is_inference()
    x = torch.randn(1, 8, 12, requires_grad=True)
    rotate(x, table).sum().backward()
    assert x.grad is not None
