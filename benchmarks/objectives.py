"""Steps of Stage1 and Stage2 in our order of work against the reference's order, on our own model.

AnyFlow: one forward with gradient that keeps the clean half, and forwards of the noisy half alone for
the samples that need them, against five whole forwards of every sample; also against plain teacher
forcing. A batch of four holds one rotation of the classes (two diffusion, one consistency, one map).
Stage2: rollouts that end at the exit step, no commit after the last chunk, the critic trained on
committed chunks, against all four calls, a commit after every chunk and a replay for the critic; one
5:1 cycle whose exits have the mean of their law. Losses and gradients are compared before any timing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.ratio import Ratio, measure
from solarwm.backbones.seam import Backbone
from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.data.tensors import LatentBatch
from solarwm.inference.causal_field import CausalField
from solarwm.nn.precision import widened
from solarwm.objectives import rollout as rollouts
from solarwm.objectives.anyflow import AnyFlow, ForwardMap, difference_window
from solarwm.objectives.distribution_matching import FROM_CONDITIONAL, critic_loss
from solarwm.objectives.flow_matching import (
    PER_BLOCK,
    FlowMatching,
    draw_noise,
    interpolate,
    velocity_target,
)
from solarwm.objectives.schedules import time_table
from solarwm.objectives.seam import ALONE, ObjectiveResult
from solarwm.objectives.self_gradient_forcing import CRITIC, STUDENT, Score, SelfGradientForcing
from solarwm.training.fields import BidirectionalField, TeacherForcedField, TeacherForcedMap

TOLERANCE = 1e-5
FRAMES, HEIGHT, WIDTH = 21, 4, 6
SHIFT = 5.0
MEAN_CALLS = 15
"""Denoising calls a chunk over the six rollouts of a cycle, at the mean exit of 2.5 calls."""


class PlainAnyFlow(AnyFlow):
    """The published order: every sample through all five forwards."""

    __slots__ = ()

    def forward_map(
        self,
        field: Any,
        clean_BFCHW: Tensor,
        noise_BFCHW: Tensor,
        sigma_BF: Tensor,
        endpoint_BF: Tensor,
        mask_BF: Tensor,
        *,
        in_step: bool = False,
    ) -> ForwardMap:
        """See `AnyFlow.forward_map`."""
        given = ~mask_BF[..., None, None, None]
        noisy = torch.where(given, clean_BFCHW, interpolate(clean_BFCHW, noise_BFCHW, sigma_BF))
        value = widened(field(noisy, sigma_BF, endpoint_BF))
        every_B = torch.arange(len(noisy))
        with torch.no_grad():
            empty = field.unconditional(noisy, sigma_BF, sigma_BF)
            target = velocity_target(clean_BFCHW, noise_BFCHW)
            target = self.guidance * target + (1.0 - self.guidance) * empty
            tangent = field.again(noisy, sigma_BF, sigma_BF, every_B)
            upper_BF, lower_BF = difference_window(sigma_BF, endpoint_BF, self.half_width)
            upper_BF, lower_BF = upper_BF * mask_BF, lower_BF * mask_BF
            sides = []
            for level_BF in (upper_BF, lower_BF):
                moved = noisy + (level_BF - sigma_BF)[..., None, None, None] * tangent
                moved = torch.where(given, clean_BFCHW, moved)
                sides.append(field.again(moved, level_BF, endpoint_BF, every_B))
            factor_BF = (sigma_BF - endpoint_BF) / (upper_BF - lower_BF).clamp(min=1e-9)
            slope = factor_BF[..., None, None, None] * (sides[0] - sides[1])
        return ForwardMap(
            noisy_BFCHW=noisy, target_BFCHW=target, map_BFCHW=value, slope_BFCHW=slope
        )


class ReferenceForcing(SelfGradientForcing):
    """The published order of the rollout, and a replay for the critic."""

    __slots__ = ()

    def roll_out(
        self,
        student: Any,
        batch: LatentBatch,
        *,
        role: str,
        seed: int,
        step: int,
        around: Any = ALONE,
    ) -> rollouts.Rollout:
        """All calls of every chunk, a commit after every chunk."""
        last = len(self.levels) - 1
        noises = [
            draw_noise(
                batch.latents_BFCHW,
                batch.slots,
                seed=seed,
                step=step,
                purpose=f"{role}-rollout-{i}",
            )
            for i in range(last + 1)
        ]
        made = rollouts.roll_out(
            student,
            self._anchor(batch),
            noises,
            levels=self.levels,
            exit_B=self._exits(batch.slots, role=role, seed=seed, step=step),
            last_step=last,
            chunk_frames=self.chunk_frames,
        )
        start = made.committed_BFCHW.shape[1] - self.chunk_frames
        with torch.no_grad():
            student.commit(made.committed_BFCHW[:, start:], start)
        return made

    def critic_losses(
        self,
        student: Any,
        critic: Any,
        batch: LatentBatch,
        *,
        seed: int,
        step: int,
        around: Any = ALONE,
    ) -> ObjectiveResult:
        """The critic's loss on the replay."""
        made = self.roll_out(student, batch, role=CRITIC, seed=seed, step=step)
        with torch.no_grad():
            output = rollouts.replay(student, made, self._anchor(batch))
            noisy, sigma_BF, noise = self._noised(output, batch, role=CRITIC, seed=seed, step=step)
        loss_B = critic_loss(critic(noisy, sigma_BF), output, noise, self._supervised(output))
        return ObjectiveResult(per_sample_B=loss_B)


def clips(count: int) -> LatentBatch:
    """Seeded latents, text and cameras."""
    generator = torch.Generator().manual_seed(0)
    dims = SPEC.profiles["tiny"].dims
    view = torch.eye(4).repeat(count, FRAMES, 1, 1)
    view[:, :, 0, 3] = torch.linspace(0, 0.6, FRAMES)
    lens = torch.tensor([[0.505, 0, 0.5], [0, 0.898, 0.5], [0, 0, 1]])
    shape = (count, FRAMES, dims.in_channels, HEIGHT, WIDTH)
    return LatentBatch(
        latents_BFCHW=torch.randn(shape, generator=generator),
        text_BTD=torch.randn(count, dims.text_len, dims.text_dim, generator=generator),
        viewmats_BF44=view,
        intrinsics_B33=lens.repeat(count, 1, 1),
        sample_ids=("",) * count,
        start_frames=(0,) * count,
        slots=tuple(range(count)),
        occurrences=tuple(range(count)),
    )


def module_of(backbone: Backbone, *, gate: float | None, seed: int) -> nn.Module:
    """A tiny transformer with a live output projection."""
    module = backbone.build(device="cpu", seed=seed, endpoint_gate=gate)
    with torch.no_grad():
        module.head.head.weight.normal_(std=0.02, generator=torch.Generator().manual_seed(seed))
    return module


def anyflow_rule(kind: type[AnyFlow]) -> AnyFlow:
    """The published recipe over a batch of four."""
    return kind(
        shift_k=SHIFT,
        table=time_table(SHIFT),
        anchored=True,
        half_width=0.005,
        guidance=3.0,
        diffusion_share=0.5,
        consistency_share=0.25,
        global_batch=4,
        numerics="corrected",
    )


def forcing_rule(kind: type[SelfGradientForcing]) -> SelfGradientForcing:
    """The published recipe."""
    return kind(
        levels=(1.0, 0.9375, 5 / 6, 0.625),
        chunk_frames=SPEC.chunk_latents,
        anchored=True,
        exit_scope="step",
        last_step_only=False,
        shift_k=SHIFT,
        table=time_table(SHIFT),
        score_low=20.0,
        score_high=980.0,
        teacher_guidance=3.0,
        critic_guidance=0.0,
        guidance_convention=FROM_CONDITIONAL,
        student_every=5,
        numerics="corrected",
    )


def gradient_of(module: nn.Module, loss: Tensor) -> Tensor:
    """All gradients in one vector."""
    module.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def require_equal(name: str, ours: Tensor, theirs: Tensor) -> None:
    """Raise unless two vectors agree relative to the second."""
    gap = float((ours - theirs).norm() / theirs.norm().clamp(min=1e-12))
    print(f"{name}: differ by {gap:.1e} (relative)")
    if gap > TOLERANCE:
        raise RuntimeError(f"{name} differ by {gap}")


def anyflow_rows(rounds: int) -> list[Ratio]:
    """Ours against five whole forwards, and against teacher-forced flow matching."""
    backbone = create(SPEC.profiles["tiny"], None)
    module, batch = module_of(backbone, gate=0.25, seed=0), clips(4)
    negative = torch.zeros(1, *batch.text_BTD.shape[1:])

    def loss(rule: AnyFlow, share: bool) -> Tensor:
        field = TeacherForcedMap(
            backbone, module, batch, negative_1TD=negative, share_context=share
        )
        return rule.losses(field, batch, seed=0, step=0).per_sample_B.mean()

    ours, plain = anyflow_rule(AnyFlow), anyflow_rule(PlainAnyFlow)
    mine, theirs = loss(ours, True), loss(plain, False)
    require_equal("AnyFlow losses", mine.detach(), theirs.detach())
    require_equal("AnyFlow gradients", gradient_of(module, mine), gradient_of(module, theirs))
    student = module_of(backbone, gate=None, seed=0)
    matching = FlowMatching(
        table=time_table(SHIFT),
        anchored=True,
        image_dropout=0.0,
        timestep_mode=PER_BLOCK,
        block=SPEC.chunk_latents,
        numerics="corrected",
    )

    def forced() -> Tensor:
        field = TeacherForcedField(backbone, student, batch)
        return matching.losses(field, batch, seed=0, step=0).per_sample_B.mean()

    return [
        measure(
            "AnyFlow step, one class rotation",
            lambda: gradient_of(module, loss(ours, True)),
            lambda: gradient_of(module, loss(plain, False)),
            anchor_name="five whole forwards",
            target=0.75,
            rounds=rounds,
            clock=process_time,
        ),
        measure(
            "AnyFlow step, one class rotation",
            lambda: gradient_of(module, loss(ours, True)),
            lambda: gradient_of(student, forced()),
            anchor_name="teacher-forced flow matching",
            target=1.9,
            rounds=rounds,
            clock=process_time,
        ),
    ]


def forcing_rows(rounds: int) -> list[Ratio]:
    """One 5:1 cycle in our order against the published order."""
    backbone = create(SPEC.profiles["tiny"], None)
    student, critic, teacher = (module_of(backbone, gate=None, seed=s) for s in (0, 1, 2))
    batch = clips(1)
    negative = torch.zeros(1, *batch.text_BTD.shape[1:])
    ours, reference = forcing_rule(SelfGradientForcing), forcing_rule(ReferenceForcing)
    seed = typical_seed(ours, batch)

    def causal() -> CausalField:
        conditions = backbone.conditions(batch)
        return CausalField(backbone, student, conditions, batch.latents_BFCHW)

    def score(module: nn.Module) -> Score:
        field = BidirectionalField(backbone, module, batch)
        return Score(conditional=field, unconditional=field.unconditional(negative))

    def student_loss(rule: SelfGradientForcing) -> Tensor:
        return rule.student_losses(
            causal(), score(teacher), score(critic), batch, seed=seed, step=5
        ).per_sample_B.mean()

    def critic_loss_of(rule: SelfGradientForcing, step: int) -> Tensor:
        judge = BidirectionalField(backbone, critic, batch)
        return rule.critic_losses(causal(), judge, batch, seed=seed, step=step).per_sample_B.mean()

    mine, theirs = student_loss(ours), student_loss(reference)
    require_equal("Stage2 student losses", mine.detach(), theirs.detach())
    require_equal("Stage2 gradients", gradient_of(student, mine), gradient_of(student, theirs))

    def cycle(rule: SelfGradientForcing) -> Callable[[], None]:
        def run() -> None:
            gradient_of(student, student_loss(rule))
            for step in range(5, 10):
                gradient_of(critic, critic_loss_of(rule, step))

        return run

    return [
        measure(
            "Stage2 outer step, mean of a 5:1 cycle",
            cycle(ours),
            cycle(reference),
            anchor_name="published order",
            target=0.75,
            rounds=rounds,
            clock=process_time,
        )
    ]


def typical_seed(rule: SelfGradientForcing, batch: LatentBatch) -> int:
    """The first seed whose six exits have the mean of their law."""
    for seed in range(1000):
        drawn = [rule._exits(batch.slots, role=CRITIC, seed=seed, step=s) for s in range(5, 10)]
        drawn.append(rule._exits(batch.slots, role=STUDENT, seed=seed, step=5))
        if sum(int(exits[0]) + 1 for exits in drawn) == MEAN_CALLS:
            return seed
    raise RuntimeError("no such seed")


def rows(*, rounds: int) -> list[Ratio]:
    """All rows. Threads as OMP_NUM_THREADS says, else all."""
    threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    if threads:
        torch.set_num_threads(threads)
    return [*anyflow_rows(rounds), *forcing_rows(rounds)]
