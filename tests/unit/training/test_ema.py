"""The running average against the recurrence written out in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from solarwm.training.ema import ShardEma


def _walk(module: nn.Module, ema: ShardEma, steps: int) -> list[torch.Tensor]:
    seen = []
    for step in range(1, steps + 1):
        with torch.no_grad():
            module.weight.add_(torch.full_like(module.weight, float(step)))
        seen.append(module.weight.detach().double().clone())
        ema.update(step)
    return seen


def test_average_follows_the_recurrence_from_the_weights_it_was_made_from() -> None:
    module = nn.Linear(3, 2, bias=False)
    expected = module.weight.detach().double().clone()
    ema = ShardEma(module, decay=0.9)
    for weight in _walk(module, ema, 5):
        expected = 0.9 * expected + 0.1 * weight
    torch.testing.assert_close(ema.shadow["weight"].double(), expected, rtol=1e-6, atol=1e-6)
    assert ema.num_updates == 5


def test_average_copies_while_warming_up() -> None:
    module = nn.Linear(3, 2, bias=False)
    ema = ShardEma(module, decay=0.9, warmup_steps=4)
    seen = _walk(module, ema, 4)
    expected = 0.9 * seen[2] + 0.1 * seen[3]
    torch.testing.assert_close(ema.shadow["weight"].double(), expected, rtol=1e-6, atol=1e-6)


def test_average_starts_and_pauses_as_told() -> None:
    module = nn.Linear(3, 2, bias=False)
    ema = ShardEma(module, decay=0.5, start_step=3, update_every=2)
    first = ema.shadow["weight"].double().clone()
    seen = _walk(module, ema, 6)
    expected = 0.5 * (0.5 * first + 0.5 * seen[3]) + 0.5 * seen[5]
    assert ema.num_updates == 2
    torch.testing.assert_close(ema.shadow["weight"].double(), expected, rtol=1e-6, atol=1e-6)


def test_half_precision_weights_are_averaged_in_fp32() -> None:
    module = nn.Linear(3, 2, bias=False).bfloat16()
    assert ShardEma(module, decay=0.9).shadow["weight"].dtype == torch.float32


def test_swapping_in_gives_the_live_bits_back_even_after_an_error() -> None:
    module = nn.Linear(3, 2)
    ema = ShardEma(module, decay=0.5)
    with torch.no_grad():
        module.weight.mul_(3)
    live = module.weight.detach().clone()

    def swapped() -> None:
        with ema.swapped_in():
            assert torch.equal(module.weight, ema.shadow["weight"])
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        swapped()
    assert torch.equal(module.weight, live)


def test_a_decay_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        ShardEma(nn.Linear(1, 1), decay=1.5)
