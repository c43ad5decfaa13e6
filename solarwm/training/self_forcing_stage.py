"""Stage2: a student on its own rollouts, a frozen teacher, a critic that follows the student.

Shapes: T text tokens, D text width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from solarwm.backbones.seam import Backbone
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.group import RankGroup
from solarwm.inference.causal_field import CausalField
from solarwm.objectives.self_gradient_forcing import (
    CRITIC,
    LOSS_NAMES,
    Score,
    SelfGradientForcing,
)
from solarwm.training.fields import BidirectionalField
from solarwm.training.stage import (
    MicroResult,
    Role,
    Update,
    backward_of,
    computing,
    surroundings,
)


@dataclass(slots=True, kw_only=True)
class SelfForcingStage:
    """An outer step updates the student when it is due, then always the critic, each from a global
    batch of its own; on such a step the critic sees the student as just updated."""

    backbone: Backbone
    objective: SelfGradientForcing
    student: Role
    critic: Role
    teacher: nn.Module
    """Frozen."""
    negative_1TD: Tensor
    """The prompt of the unconditional branches."""
    delta_policy: str
    seed: int
    global_batch_size: int
    autocast: torch.dtype | None
    group: RankGroup
    memory: dict[str, float] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[Role, ...]:
        """Student and critic."""
        return (self.student, self.critic)

    @property
    def role(self) -> Role:
        """The student."""
        return self.student

    def updates(self, step: int) -> tuple[Update, ...]:
        """The student's update when it is due, and the critic's."""
        critic = self._update(self.critic, step, number=step)
        if not self.objective.student_is_due(step):
            return (critic,)
        made = self.objective.student_updates(step)
        return (self._update(self.student, step, number=made), critic)

    def updates_before(self, step: int) -> int:
        """One of the critic a step, and those of the student."""
        return step + self.objective.student_updates(step)

    def backward(self, batch: LatentBatch, *, step: int, role: str) -> MicroResult:
        """Add the gradient of one role's loss, sum over rows / global batch.

        Draws are keyed by (seed, purpose, step, slot); purposes name the role. Collective over all
        ranks when sharded.
        """
        objective, module = self.objective, self.student.module
        around = surroundings(batch, self.group, self.student.layout, self.memory)
        device = batch.latents_BFCHW.device
        with computing(device, self.autocast):
            student = CausalField(
                self.backbone,
                module,
                self.backbone.conditions(batch),
                batch.latents_BFCHW,
                delta_policy=self.delta_policy,
            )
            critic = BidirectionalField(self.backbone, self.critic.module, batch)
            if role == CRITIC:
                result = objective.critic_losses(
                    student, critic, batch, seed=self.seed, step=step, around=around
                )
            else:
                teacher = BidirectionalField(self.backbone, self.teacher, batch)
                result = objective.student_losses(
                    student,
                    self._score(teacher, device),
                    self._score(critic, device),
                    batch,
                    seed=self.seed,
                    step=step,
                    around=around,
                )
        made = backward_of(result, self.global_batch_size)
        for trained in self.roles:  # rollouts and scores without gradient leave roots gathered
            trained.layout.settle(trained.module)
        return made

    def _score(self, judge: BidirectionalField, device: torch.device) -> Score:
        return Score(
            conditional=judge, unconditional=judge.unconditional(self.negative_1TD.to(device))
        )

    def _update(self, role: Role, step: int, *, number: int) -> Update:
        return Update(
            role=role,
            number=number,
            loss_names=LOSS_NAMES[role.name],
            backward=lambda batch: self.backward(batch, step=step, role=role.name),
            report=self.objective.report,
            finish=_nothing,
        )


def _nothing(sums: Mapping[str, float]) -> None:
    """Steps do not depend on each other's losses."""
