"""A stage joins a backbone and objectives over roles, and says which role each step updates.

Shapes: B batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from solarwm.backbones.seam import Backbone
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import REPLICATED, Layout
from solarwm.objectives.seam import Objective, ObjectiveResult, Surroundings
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
    updates_skipped: int = 0
    """Updates that were passed over because a number was not finite; saved."""
    parameters: list[nn.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroResult:
    """What one microbatch gave, detached: `per_sample_B` is the optimised loss of each sample."""

    per_sample_B: torch.Tensor
    metrics: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer update of one role, made from one global batch."""

    role: Role
    number: int
    """Updates this role has had before."""
    loss_names: tuple[str, ...]
    """Metrics [B] that are summed over the global batch."""
    backward: Callable[[LatentBatch], MicroResult]
    """Adds a microbatch's gradient of sum over rows / global batch. Collective when sharded."""
    report: Callable[[Mapping[str, float], int], dict[str, float]]
    """(sums of `loss_names`, samples) to the losses that are told."""
    finish: Callable[[Mapping[str, float]], None]
    """Takes the sums over the global batch once the role has moved."""


class Stage(Protocol):
    """What the loop, saving and validation ask of a stage."""

    backbone: Backbone
    seed: int
    global_batch_size: int
    memory: dict[str, float]
    """What objectives keep from step to step; saved, equal on all ranks."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """Every trained role, the student first."""
        ...

    @property
    def role(self) -> Role:
        """The student: what is generated with."""
        ...

    def updates(self, step: int) -> tuple[Update, ...]:
        """The updates of the step after `step` completed ones, in order; each takes a new global
        batch."""
        ...

    def updates_before(self, step: int) -> int:
        """Updates, and so global batches, of the first `step` steps."""
        ...


@dataclass(slots=True, kw_only=True)
class SingleRoleStage:
    """Flow matching and its kin: one student, one loss."""

    backbone: Backbone
    objective: Objective
    role: Role
    seed: int
    global_batch_size: int
    autocast: torch.dtype | None
    """Compute dtype where the layout does not cast by itself; None keeps the parameters' dtype."""
    group: RankGroup
    open_field: Callable[[nn.Module, LatentBatch], Any]
    """The module as the objective asks for it, in the layout of the route."""
    memory: dict[str, float] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The student."""
        return (self.role,)

    def updates(self, step: int) -> tuple[Update, ...]:
        """One update of the student a step."""
        return (
            Update(
                role=self.role,
                number=step,
                loss_names=self.objective.loss_names,
                backward=lambda batch: self.backward(batch, step=step),
                report=self.objective.report,
                finish=self._remember,
            ),
        )

    def updates_before(self, step: int) -> int:
        """One a step."""
        return step

    def backward(self, batch: LatentBatch, *, step: int) -> MicroResult:
        """Add the gradient of sum over rows / global batch. `step` counts completed optimizer
        steps.

        Draws are keyed by (seed, purpose, step, slot). Collective over all ranks when sharded.
        """
        with computing(batch.latents_BFCHW.device, self.autocast):
            result = self.objective.losses(
                self.open_field(self.role.module, batch),
                batch,
                seed=self.seed,
                step=step,
                around=surroundings(batch, self.group, self.role.layout, self.memory),
            )
        return backward_of(result, self.global_batch_size)

    def _remember(self, sums: Mapping[str, float]) -> None:
        self.memory = self.objective.remember(sums, self.memory)


def computing(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """Autocast to `dtype`, or nothing for None."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def backward_of(result: ObjectiveResult, global_batch_size: int) -> MicroResult:
    """Add the gradient of sum over rows / global batch; what is left, detached."""
    (result.per_sample_B.sum() / global_batch_size).backward()
    metrics = {name: value.detach() for name, value in result.metrics.items()}
    return MicroResult(per_sample_B=result.per_sample_B.detach(), metrics=metrics)


def surroundings(
    batch: LatentBatch, group: RankGroup, layout: Layout, memory: Mapping[str, float]
) -> Surroundings:
    """What a microbatch must know of its peers: ranks forward together where parameters are
    sharded."""
    together = group.place.dp_world * batch.batch_size
    first = batch.slots[0] // together * together
    peers = () if layout.name in REPLICATED else tuple(range(first, first + together))
    gather = None
    if group.world_size > 1:
        gather = _gatherer(group)
    return Surroundings(memory=memory, peer_slots=peers, gather=gather)


def _gatherer(group: RankGroup) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda values: group.collectives.gather(values, label="losses of a microbatch")


def checkpoint_activations(module: nn.Module, *, block_class: str, every: int = 1) -> None:
    """Recompute the inside of every `every`-th block in the backward instead of keeping it, the
    first one included; names stay as they are."""
    from torch.utils.checkpoint import checkpoint

    def recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **kwargs)

    blocks = [part for part in module.modules() if type(part).__name__ == block_class]
    for block in blocks[::every]:
        block.forward = recomputed(block.forward)


def compile_blocks(module: nn.Module, *, block_class: str) -> None:
    """Compile each block at its first call; names stay as they are. To be called after
    `checkpoint_activations` and before the module is laid out."""
    for part in module.modules():
        if type(part).__name__ == block_class:
            part.compile()
