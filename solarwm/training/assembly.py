"""From a resolved config to a stage that can step: backbone, weights, layout, optimizer, average."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from solarwm.backbones.seam import Backbone
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import DTYPES, REPLICATED, fingerprint, lay_out
from solarwm.errors.types import SolarError
from solarwm.training.ema import ShardEma
from solarwm.training.optim import adamw
from solarwm.training.schedule import WarmupCosine
from solarwm.training.stage import Role, SingleRoleStage, checkpoint_activations


def open_backbone(resolved: Any) -> Backbone:
    """The backbone of the chosen route at the chosen profile."""
    spec = resolved.route.spec
    profile = spec.profiles[resolved.config.model.profile]
    return _load(spec.heavy)(profile, resolved.config.model)


def build_module(resolved: Any, backbone: Backbone, device: torch.device) -> nn.Module:
    """The student's transformer with its start weights: those of the base model, of `checkpoint`,
    or drawn."""
    config = resolved.config
    module = backbone.build(device=device, seed=config.data.seed)
    checkpoint = config.checkpoint
    if checkpoint.mode == "weights_only":
        weights = checkpoint.weights or "live"
        chosen = weights if isinstance(weights, str) else weights[0]
        backbone.load(module, Path(checkpoint.path), weights=chosen)
    elif config.model.profile == "released":
        base = Path(config.model.base_path)
        backbone.load(module, base / config.model.assets.transformer_weights, weights="live")
    return module


def build_stage(resolved: Any, group: RankGroup) -> SingleRoleStage:
    """The stage of a single-role route on this rank's device. Collective over all ranks."""
    config, spec = resolved.config, resolved.route.spec
    backbone = open_backbone(resolved)
    module = build_module(resolved, backbone, group.device)
    module.train()
    sharding = config.train.fsdp
    if sharding.activation_checkpointing:
        checkpoint_activations(module, block_class=spec.block_class)
    layout = lay_out(
        module,
        group,
        strategy=sharding.strategy,
        block_class=spec.block_class,
        param_dtype=sharding.param_dtype,
        reduce_dtype=sharding.reduce_dtype,
    )
    role = Role(
        name="student",
        module=module,
        layout=layout,
        optimizer=_optimizer(config.train.optimizer, module),
        schedule=WarmupCosine(
            warmup=config.warmup_steps,
            total=config.train.max_steps,
            min_ratio=config.train.optimizer.min_lr_ratio,
        ),
        base_lr=config.train.optimizer.lr,
        grad_clip=config.train.optimizer.grad_clip,
        ema=_average(config.ema, module),
    )
    if sharding.strategy in REPLICATED:
        require_equal_replicas(group, role.parameters)
    return SingleRoleStage(
        backbone=backbone,
        objective=_load(resolved.route.objective_factory)(config),
        role=role,
        seed=config.data.seed,
        global_batch_size=config.train.global_batch_size,
        autocast=_autocast(sharding),
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


def _average(section: Any, module: nn.Module) -> ShardEma | None:
    if not section.enabled:
        return None
    return ShardEma(
        module,
        decay=section.decay,
        start_step=section.start_step,
        update_every=section.update_every,
        warmup_steps=section.warmup_steps,
    )


def _autocast(sharding: Any) -> torch.dtype | None:
    if sharding.strategy not in REPLICATED or sharding.param_dtype in (None, "float32", "float64"):
        return None
    return DTYPES[sharding.param_dtype]


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
