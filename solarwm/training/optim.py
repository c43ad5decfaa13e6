"""The optimizer of one role: AdamW with decoupled decay over the parameters a rank holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from solarwm.distributed.sharding import gradients


def adamw(
    parameters: Iterable[nn.Parameter],
    *,
    lr: float,
    betas: Sequence[float],
    eps: float,
    weight_decay: float,
) -> torch.optim.AdamW:
    """torch AdamW in its fused form (one pass over memory): w <- w (1 - lr wd); w <- w - lr m' /
    (sqrt(v') + eps)."""
    return torch.optim.AdamW(
        list(parameters),
        lr=lr,
        betas=(betas[0], betas[1]),
        eps=eps,
        weight_decay=weight_decay,
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use learning rate `lr` for the next update, in every parameter group."""
    for entry in optimizer.param_groups:
        entry["lr"] = lr


def clip(parameters: Sequence[nn.Parameter], norm: torch.Tensor, limit: float) -> None:
    """Scale gradients by min(1, limit / (norm + 1e-6)), in place, `norm` being their global 2-norm.

    `limit` 0 or less leaves them alone. No communication.
    """
    if limit <= 0:
        return
    scale = torch.clamp(limit / (norm + 1e-6), max=1.0)
    torch._foreach_mul_(gradients(parameters), scale)
