"""AdamW against the published update written out in float64; clipping against torch."""

from __future__ import annotations

import torch
from torch import nn

from solarwm.training.optim import adamw, clip, set_rate


def test_updates_follow_decoupled_adamw() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer = adamw([parameter], lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    weight = parameter.detach().double().clone()
    mean, square = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for step in range(1, 5):
        gradient = torch.tensor([0.5, -1.0, 2.0]) * step
        rate = 0.1 / step
        set_rate(optimizer, rate)
        parameter.grad = gradient.clone()
        optimizer.step()
        weight = weight * (1 - rate * 0.01)
        mean = 0.9 * mean + 0.1 * gradient.double()
        square = 0.95 * square + 0.05 * gradient.double() ** 2
        denominator = (square.sqrt() / (1 - 0.95**step) ** 0.5) + 1e-8
        weight = weight - rate / (1 - 0.9**step) * mean / denominator
        torch.testing.assert_close(parameter.detach().double(), weight, rtol=1e-5, atol=1e-6)


def test_clipping_equals_that_of_torch() -> None:
    for limit in (0.5, 100.0):
        ours = [nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2, 2))]
        theirs = [nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2, 2))]
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            mine.grad = torch.randn(mine.shape, generator=torch.Generator().manual_seed(index))
            other.grad = mine.grad.clone()
        norm = torch.stack([p.grad.norm() for p in ours]).norm()
        clip(ours, norm, limit)
        nn.utils.clip_grad_norm_(theirs, limit)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.grad, other.grad)


def test_a_limit_of_zero_leaves_gradients_alone() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    clip([parameter], torch.tensor(5.0), 0.0)
    assert parameter.grad.tolist() == [3.0, 4.0]
