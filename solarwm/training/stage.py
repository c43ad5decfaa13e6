"""A stage joins a backbone and an objective over roles; this one trains a single role.

Shapes: B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from solarwm.backbones.seam import Backbone
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.sharding import Layout
from solarwm.objectives.seam import Objective
from solarwm.training.ema import ShardEma
from solarwm.training.schedule import WarmupCosine


@dataclass(slots=True, kw_only=True)
class Role:
    """One trained module with everything that belongs to it."""

    name: str
    module: nn.Module
    layout: Layout
    optimizer: torch.optim.Optimizer
    schedule: WarmupCosine
    base_lr: float
    grad_clip: float
    ema: ShardEma | None
    parameters: list[nn.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroResult:
    """What one microbatch gave, detached: `per_sample_B` is the optimised loss of each sample."""

    per_sample_B: torch.Tensor
    metrics: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRoleStage:
    """Flow matching and its kin: one student, one loss."""

    backbone: Backbone
    objective: Objective
    role: Role
    seed: int
    global_batch_size: int
    autocast: torch.dtype | None
    """Compute dtype where the layout does not cast by itself; None keeps the parameters' dtype."""

    def backward(self, batch: LatentBatch, *, step: int) -> MicroResult:
        """Add the gradient of sum over rows / global batch. `step` counts completed optimizer
        steps.

        Draws are keyed by (seed, purpose, step, slot). Collective over all ranks when sharded.
        """
        module = self.role.module
        conditions = self.backbone.conditions(batch)
        device = batch.latents_BFCHW.device
        with torch.autocast(device.type, dtype=self.autocast, enabled=self.autocast is not None):
            result = self.objective.losses(
                lambda latents, sigma: self.backbone.velocity(module, latents, sigma, conditions),
                batch,
                seed=self.seed,
                step=step,
            )
        (result.per_sample_B.sum() / self.global_batch_size).backward()
        metrics = {name: value.detach() for name, value in result.metrics.items()}
        return MicroResult(per_sample_B=result.per_sample_B.detach(), metrics=metrics)


def checkpoint_activations(module: nn.Module, *, block_class: str) -> None:
    """Recompute each block's inside in the backward instead of keeping it; names stay as they are."""
    from torch.utils.checkpoint import checkpoint

    def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **kwargs)

    for block in module.modules():
        if type(block).__name__ == block_class:
            block.forward = recomputed(block.forward)
