"""From a resolved config to a stage that can step: backbone, weights, roles, objective."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solarwm.backbones.seam import Backbone
from solarwm.checkpoints.sources import load_source
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.collectives import share_outcome
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import compute_dtype
from solarwm.errors.types import SolarError
from solarwm.inference.plan import endpoint_gate
from solarwm.training.fields import BidirectionalField, TeacherForcedField, TeacherForcedMap
from solarwm.training.initial_weights import FLOW_MAP, STUDENT, StartWeights, start_weights
from solarwm.training.negative_prompt import negative_text
from solarwm.training.roles import frozen_module, trained_role
from solarwm.training.self_forcing_stage import SelfForcingStage
from solarwm.training.stage import SingleRoleStage, Stage

Weights = dict[str, StartWeights]


def open_backbone(resolved: Any) -> Backbone:
    """The backbone of the chosen route at the chosen profile."""
    spec = resolved.route.spec
    profile = spec.profiles[resolved.config.model.profile]
    backbone = _load(spec.heavy)(profile, resolved.config.model)
    backbone.compile_flex = bool(getattr(resolved.config.runtime, "compile_flex", False))
    return backbone


def build_module(
    resolved: Any,
    backbone: Backbone,
    device: torch.device,
    role: str = STUDENT,
    start: StartWeights | None = None,
    drawn: bool = False,
) -> nn.Module:
    """The transformer of a role with its start weights: those of `start`, of the base model, or
    drawn.

    `drawn` asks for no start weights, since a checkpoint will fill them in.
    """
    gate = endpoint_gate(resolved) if role == STUDENT else None
    module = backbone.build(device=device, seed=resolved.config.data.seed, endpoint_gate=gate)
    if not drawn:
        _fill(resolved, backbone, module, start)
    return module


def check_weights(
    resolved: Any, backbone: Backbone, start: Weights, *, resuming: bool = False
) -> None:
    """Compare names and shapes of all start weights with models on meta, and look for numbers that
    are not finite: nothing is allocated.

    Raises `weights.*` (exit 3).
    """
    for role in resolved.route.roles:
        if resuming and role != "teacher":
            continue
        gate = endpoint_gate(resolved) if role == STUDENT else None
        module = backbone.build(device="meta", seed=0, endpoint_gate=gate)
        _fill(resolved, backbone, module, start.get(role), check=True)


def _check_on_one_rank(
    resolved: Any, group: RankGroup, backbone: Backbone, start: Weights, *, resuming: bool
) -> None:
    """The files are the same for all ranks, and large: one of them reads them, all learn."""
    fault: SolarError | None = None
    if group.world_rank == 0:
        try:
            check_weights(resolved, backbone, start, resuming=resuming)
        except SolarError as error:
            fault = error
    share_outcome(group.collectives, fault, label="start weights")


def _fill(
    resolved: Any,
    backbone: Backbone,
    module: nn.Module,
    start: StartWeights | None,
    *,
    check: bool = False,
) -> None:
    config = resolved.config
    if start is not None:
        load_source(
            start.source,
            backbone,
            module,
            weights=start.weights,
            endpoint=start.endpoint,
            check=check,
        )
    elif config.model.profile == "released":
        base = Path(config.model.base_path)
        endpoint = "fill" if resolved.route.objective == FLOW_MAP else "exact"
        place = base / config.model.assets.transformer_weights
        backbone.load(module, place, weights="live", endpoint=endpoint, check=check)


def build_stage(resolved: Any, group: RankGroup, *, resuming: bool = False) -> Stage:
    """The stage of a route on this rank's device; `resuming` leaves what a checkpoint will fill in.
    Collective over all ranks."""
    backbone = open_backbone(resolved)
    backbone.sequence = group.sequence
    start = start_weights(resolved)
    _check_on_one_rank(resolved, group, backbone, start, resuming=resuming)
    if resolved.route.causal_mode == "self_gradient_forcing":
        return _self_forcing(resolved, group, backbone, start, resuming=resuming)
    config = resolved.config
    module = build_module(resolved, backbone, group.device, STUDENT, start.get(STUDENT), resuming)
    role = trained_role(
        resolved,
        group,
        module,
        name=STUDENT,
        optimizer=config.train.optimizer,
        warmup=config.warmup_steps,
        updates=config.train.max_steps,
        average=config.ema,
    )
    return SingleRoleStage(
        backbone=backbone,
        objective=_load(resolved.route.objective_factory)(config),
        role=role,
        seed=config.data.seed,
        global_batch_size=config.train.global_batch_size,
        autocast=compute_dtype(config.train.fsdp),
        group=group,
        open_field=_field(resolved, backbone, group.device),
    )


def _self_forcing(
    resolved: Any, group: RankGroup, backbone: Backbone, start: Weights, *, resuming: bool
) -> SelfForcingStage:
    config = resolved.config
    train = config.train
    objective = _load(resolved.route.objective_factory)(config)

    def module(role: str, drawn: bool) -> nn.Module:
        return build_module(resolved, backbone, group.device, role, start.get(role), drawn)

    student = trained_role(
        resolved,
        group,
        module(STUDENT, resuming),
        name=STUDENT,
        optimizer=train.optimizer,
        warmup=train.optimizer.warmup_steps,
        updates=objective.student_updates(train.max_steps),
        average=config.ema,
        average_starts_as_copy=True,
    )
    critic = trained_role(
        resolved,
        group,
        module("critic", resuming),
        name="critic",
        optimizer=train.critic_optimizer,
        warmup=train.critic_optimizer.warmup_steps,
        updates=train.max_steps,
        average=None,
    )
    return SelfForcingStage(
        backbone=backbone,
        objective=objective,
        student=student,
        critic=critic,
        teacher=frozen_module(resolved, group, module("teacher", False)),
        negative_1TD=negative_text(resolved, backbone, group.device),
        delta_policy=train.delta_policy,
        seed=config.data.seed,
        global_batch_size=train.global_batch_size,
        autocast=compute_dtype(train.fsdp),
        group=group,
    )


def _field(
    resolved: Any, backbone: Backbone, device: torch.device
) -> Callable[[nn.Module, LatentBatch], Any]:
    route = resolved.route
    if route.causal_mode == "bidirectional":
        return partial(BidirectionalField, backbone)
    if route.objective != FLOW_MAP:
        return partial(TeacherForcedField, backbone)
    negative: Tensor | None = None
    if getattr(resolved.config.train, "anyflow_fuse_guidance_scale", 1.0) != 1.0:
        negative = negative_text(resolved, backbone, device)
    return partial(TeacherForcedMap, backbone, negative_1TD=negative)


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
