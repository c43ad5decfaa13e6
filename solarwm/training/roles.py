"""One role of a stage: its module laid out on the ranks, its optimizer, schedule and average."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from solarwm.distributed.devices import require_compiler
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import REPLICATED, Layout, fingerprint, lay_out
from solarwm.errors.types import SolarError
from solarwm.training.ema import ShardEma
from solarwm.training.optim import adamw
from solarwm.training.schedule import WarmupCosine
from solarwm.training.stage import Role, checkpoint_activations, compile_blocks


def trained_role(
    resolved: Any,
    group: RankGroup,
    module: nn.Module,
    *,
    name: str,
    optimizer: Any,
    warmup: int,
    updates: int,
    average: Any,
    average_starts_as_copy: bool = False,
) -> Role:
    """A role that is trained for `updates` updates. Collective over all ranks.

    `optimizer` and `average` are their config sections; `average` None keeps none.
    """
    module.train()
    sharding = resolved.config.train.fsdp
    if sharding.activation_checkpointing:
        checkpoint_activations(
            module,
            block_class=resolved.route.spec.block_class,
            every=getattr(sharding, "recompute_every", 1),
        )
    layout = spread(resolved, group, module)
    role = Role(
        name=name,
        module=module,
        layout=layout,
        optimizer=_optimizer(optimizer, module),
        schedule=WarmupCosine(warmup=warmup, total=updates, min_ratio=optimizer.min_lr_ratio),
        base_lr=optimizer.lr,
        grad_clip=optimizer.grad_clip,
        ema=_average(average, module, starts_as_copy=average_starts_as_copy),
    )
    if sharding.strategy in REPLICATED:
        require_equal_replicas(group, role.parameters)
    return role


def frozen_module(resolved: Any, group: RankGroup, module: nn.Module) -> nn.Module:
    """A module that only judges, spread like the trained ones. Collective over all ranks."""
    module.eval().requires_grad_(False)
    spread(resolved, group, module)
    return module


def spread(resolved: Any, group: RankGroup, module: nn.Module) -> Layout:
    """Lay a module out as `train.fsdp` says, in place. Collective over all ranks."""
    sharding = resolved.config.train.fsdp
    if getattr(resolved.config.runtime, "compile_blocks", False):
        require_compiler(group.device.type)
        compile_blocks(module, block_class=resolved.route.spec.block_class)
    return lay_out(
        module,
        group,
        strategy=sharding.strategy,
        block_class=resolved.route.spec.block_class,
        param_dtype=sharding.param_dtype,
        reduce_dtype=sharding.reduce_dtype,
        cpu_offload=getattr(sharding, "cpu_offload", False),
    )


def require_equal_replicas(group: RankGroup, parameters: list[nn.Parameter]) -> None:
    """Refuse (exit 5) to train replicas that differ. Collective over all ranks."""
    if group.world_size == 1:
        return
    sums = group.collectives.gather(fingerprint(parameters), label="weights equal")
    different = [index for index in range(len(sums)) if not torch.equal(sums[index], sums[0])]
    if different:
        raise SolarError(
            "distributed.replicas-differ",
            f"rank {different[0]} holds other weights than rank 0",
            why="every rank must start from equal weights",
            fixes=["use one version of torch and of solarwm on all nodes"],
            context={"ranks": different},
        )


def _optimizer(section: Any, module: nn.Module) -> torch.optim.AdamW:
    return adamw(
        (p for p in module.parameters() if p.requires_grad),
        lr=section.lr,
        betas=section.betas,
        eps=section.eps,
        weight_decay=section.weight_decay,
    )


def _average(section: Any, module: nn.Module, *, starts_as_copy: bool) -> ShardEma | None:
    if section is None or not section.enabled:
        return None
    return ShardEma(
        module,
        decay=section.decay,
        start_step=section.start_step,
        update_every=section.update_every,
        warmup_steps=section.warmup_steps,
        starts_as_copy=starts_as_copy,
    )
