"""Self-gradient forcing: a causal few-step student judged on its own rollouts.

A rollout without gradient leaves the noisy input of every chunk at the exit step and the chunks it
committed. One parallel forward makes the same estimates again, with gradient through the chunk and
through the re-encoded history (what the model writes to its memory); committed chunks are constants.
The student follows the difference of two scores at a random noise level; the critic learns the flow
of what the student makes.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solarwm.data.tensors import LatentBatch
from solarwm.objectives.distribution_matching import (
    critic_loss,
    guided,
    matching_gradient,
    matching_loss,
    needs_unconditional,
    score_levels,
)
from solarwm.objectives.flow_matching import (
    clean_from_velocity,
    draw_noise,
    family_spec,
    interpolate,
    training_shift,
)
from solarwm.objectives.rollout import (
    CausalStudent,
    Rollout,
    anchored,
    exit_steps,
    replay,
    roll_out,
)
from solarwm.objectives.schedules import (
    NUM_TRAIN_TIMESTEPS,
    TimeTable,
    shifted_grid,
    time_table,
    warped_timesteps,
)
from solarwm.objectives.seam import ALONE, ObjectiveResult, Surroundings, Velocity, means
from solarwm.routes.spec import BackboneSpec

STUDENT, CRITIC = "student", "critic"
LOSS_NAMES = {
    STUDENT: ("dmd", "dmd_normaliser", "dmd_gradient", "dmd_replaced"),
    CRITIC: ("critic",),
}
"""Metrics [B] of each role's update that are summed over the global batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One judge of noised samples: its velocity with and without the prompt."""

    conditional: Velocity
    unconditional: Velocity


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfGradientForcing:
    """The rule of one route; a frozen value without weights."""

    levels: tuple[float, ...]
    """Noise levels of the rollout, falling from 1."""
    chunk_frames: int
    anchored: bool
    """The first latent frame of every sample is given."""
    exit_scope: str
    """`slot` or `step`."""
    last_step_only: bool
    shift_k: float
    table: TimeTable
    score_low: float
    """Smallest raw time of a score."""
    score_high: float
    teacher_guidance: float
    critic_guidance: float
    guidance_convention: str
    student_every: int
    """Outer steps between student updates."""
    numerics: str

    def student_is_due(self, step: int) -> bool:
        """Whether outer step `step` (completed ones) begins with a student update."""
        return step > 0 and step % self.student_every == 0

    def student_updates(self, step: int) -> int:
        """Student updates in the first `step` outer steps."""
        return max(0, step - 1) // self.student_every

    def roll_out(
        self,
        student: CausalStudent,
        batch: LatentBatch,
        *,
        role: str,
        seed: int,
        step: int,
        around: Surroundings = ALONE,
    ) -> Rollout:
        """The rollout for the update of `role`. Draws: purposes `<role>-exit`, `<role>-rollout-<i>`."""
        clean, slots = batch.latents_BFCHW, batch.slots
        exit_B = self._exits(slots, role=role, seed=seed, step=step)
        peers_B = self._exits(around.peer_slots or slots, role=role, seed=seed, step=step)
        last_step = int(peers_B.max())
        noises = [
            draw_noise(clean, slots, seed=seed, step=step, purpose=f"{role}-rollout-{number}")
            for number in range(last_step + 1)
        ]
        return roll_out(
            student,
            self._anchor(batch),
            noises,
            levels=self.levels,
            exit_B=exit_B,
            last_step=last_step,
            chunk_frames=self.chunk_frames,
        )

    def student_losses(
        self,
        student: CausalStudent,
        teacher: Score,
        critic: Score,
        batch: LatentBatch,
        *,
        seed: int,
        step: int,
        around: Surroundings = ALONE,
    ) -> ObjectiveResult:
        """The matching loss of each sample. Draws: those of the rollout, `student-score`,
        `student-noise`."""
        rollout = self.roll_out(student, batch, role=STUDENT, seed=seed, step=step, around=around)
        anchor = self._anchor(batch)
        output = replay(student, rollout, anchor)
        with torch.no_grad():
            noisy, sigma_BF, _ = self._noised(
                output.detach(), batch, role=STUDENT, seed=seed, step=step
            )
            mask_BF = self._supervised(output)
            fake = self._estimate(critic, noisy, sigma_BF, self.critic_guidance)
            real = self._estimate(teacher, noisy, sigma_BF, self.teacher_guidance)
            asked = matching_gradient(output, fake, real, mask_BF)
        loss_B = matching_loss(output, asked.gradient_BFCHW, mask_BF)
        return ObjectiveResult(
            per_sample_B=loss_B,
            metrics={
                "dmd": loss_B.detach(),
                "dmd_normaliser": asked.normaliser_B,
                "dmd_gradient": (2.0 * loss_B.detach()).sqrt(),
                "dmd_replaced": asked.replaced_B.float(),
                "sigma": sigma_BF[:, -1],
                "exit_sigma": rollout.sigma_BF[:, -1],
            },
        )

    def critic_losses(
        self,
        student: CausalStudent,
        critic: Velocity,
        batch: LatentBatch,
        *,
        seed: int,
        step: int,
        around: Surroundings = ALONE,
    ) -> ObjectiveResult:
        """Flow matching of the critic on what the student makes. Draws: those of the rollout,
        `critic-score`, `critic-noise`.

        In corrected numerics the committed chunks are the sample; the published rollout sees other
        positions than its replay, so there the replay is made.
        """
        rollout = self.roll_out(student, batch, role=CRITIC, seed=seed, step=step, around=around)
        with torch.no_grad():
            output = rollout.committed_BFCHW
            if self.numerics == "published":
                output = replay(student, rollout, self._anchor(batch))
            noisy, sigma_BF, noise = self._noised(output, batch, role=CRITIC, seed=seed, step=step)
        velocity = critic(noisy, sigma_BF)
        loss_B = critic_loss(velocity, output, noise, self._supervised(output))
        return ObjectiveResult(
            per_sample_B=loss_B,
            metrics={
                "critic": loss_B.detach(),
                "sigma": sigma_BF[:, -1],
                "exit_sigma": rollout.sigma_BF[:, -1],
            },
        )

    def report(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        """The mean of each value."""
        return means(sums, samples)

    def remember(self, sums: Mapping[str, float], memory: Mapping[str, float]) -> dict[str, float]:
        """Nothing: steps do not depend on each other's losses."""
        return {}

    def _exits(self, slots: tuple[int, ...], *, role: str, seed: int, step: int) -> Tensor:
        if self.last_step_only:
            return torch.full((len(slots),), len(self.levels) - 1)
        return exit_steps(
            slots,
            seed=seed,
            step=step,
            purpose=f"{role}-exit",
            num_steps=len(self.levels),
            scope=self.exit_scope,
        )

    def _noised(
        self, output: Tensor, batch: LatentBatch, *, role: str, seed: int, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(noised samples, their noise levels [B,F], the noise)."""
        sigma_B = score_levels(
            batch.slots,
            seed=seed,
            step=step,
            purpose=f"{role}-score",
            shift_k=self.shift_k,
            low=self.score_low,
            high=self.score_high,
        )
        told_BF = sigma_B.to(output.device)[:, None].repeat(1, output.shape[1])
        applied_BF = told_BF
        if self.numerics == "published":
            nearest_B = self.table.nearest(sigma_B * NUM_TRAIN_TIMESTEPS)
            applied_BF = self.table.sigmas_N[nearest_B].to(told_BF)[:, None].expand_as(told_BF)
        noise = draw_noise(output, batch.slots, seed=seed, step=step, purpose=f"{role}-noise")
        noisy = anchored(interpolate(output, noise, applied_BF), self._anchor(batch))
        if self.anchored:
            told_BF[:, 0] = 0.0
        return noisy, told_BF, noise

    def _estimate(self, score: Score, noisy: Tensor, sigma_BF: Tensor, scale: float) -> Tensor:
        """x0 by one judge, guided."""
        conditional = clean_from_velocity(noisy, score.conditional(noisy, sigma_BF), sigma_BF)
        if not needs_unconditional(scale, self.guidance_convention):
            return conditional
        unconditional = clean_from_velocity(noisy, score.unconditional(noisy, sigma_BF), sigma_BF)
        return guided(conditional, unconditional, scale, self.guidance_convention)

    def _supervised(self, output: Tensor) -> Tensor:
        mask_BF = torch.ones(output.shape[:2], dtype=torch.bool, device=output.device)
        if self.anchored:
            mask_BF[:, 0] = False
        return mask_BF

    def _anchor(self, batch: LatentBatch) -> Tensor | None:
        return batch.latents_BFCHW[:, 0] if self.anchored else None


def create(config: Any, spec: BackboneSpec | None = None) -> SelfGradientForcing:
    """The rule of a resolved run config; `spec` defaults to that of `config.model.family`."""
    spec = spec or family_spec(config.model.family)
    train = config.train
    published = config.model.numerics == "published"
    scope = train.exit_scope
    if scope == "auto":
        scope = "slot" if published else "step"
    shift_k = training_shift(config, spec)
    low, high = _score_range(train)
    return SelfGradientForcing(
        levels=denoising_levels(train, shift_k),
        chunk_frames=spec.chunk_latents,
        anchored=spec.first_frame_anchored,
        exit_scope=scope,
        last_step_only=train.last_step_only,
        shift_k=shift_k,
        table=time_table(shift_k),
        score_low=low,
        score_high=high,
        teacher_guidance=float(getattr(train, "real_guidance_scale", 0.0)),
        critic_guidance=float(getattr(train, "fake_guidance_scale", 0.0)),
        guidance_convention=getattr(train, "guidance_convention", "conditional"),
        student_every=train.critic_updates_per_student,
        numerics="published" if published else "corrected",
    )


def denoising_levels(train: Any, shift_k: float) -> tuple[float, ...]:
    """Noise levels of the few-step rollout, falling from 1, the end at 0 left out."""
    labels = getattr(train, "denoising_step_list", None)
    if labels is None:
        return tuple(shifted_grid(train.num_denoising_steps, shift_k).tolist()[:-1])
    raw = warped_timesteps(tuple(int(label) for label in labels), shift_k)
    return tuple((raw / NUM_TRAIN_TIMESTEPS).tolist())


def _score_range(train: Any) -> tuple[float, float]:
    if hasattr(train, "score_min_timestep"):
        return train.score_min_timestep, train.score_max_timestep
    scale = NUM_TRAIN_TIMESTEPS
    return train.score_min_sigma * scale, train.score_max_sigma * scale
