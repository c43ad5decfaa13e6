"""Fields of `train` that self-gradient forcing reads."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config.marks import Format, Recipe
from solarwm.config.strict import (
    Fraction,
    Listed,
    NonNegative,
    Positive,
    PositiveInt,
    Section,
    Text,
)


class SelfGradientForcingFields(Section):
    """Distribution matching on the student's own rollouts."""

    critic_updates_per_student: Annotated[PositiveInt, Recipe(value=5)] = 5
    """Critic updates for each student update."""
    per_rank_exit_step: Annotated[bool, Format(value=True)] = True
    """Published format field; `exit_scope` says how exit steps are shared."""
    exit_scope: Literal["auto", "slot", "step"] = "auto"
    """Exit step drawn for each sample or once a step; `auto` = slot in published numerics, step in
    corrected."""
    last_step_only: bool = False
    """Always exit at the last denoising step."""
    delta_policy: Literal["drop", "keep_diagonal", "keep_consistency"] = "drop"
    """What becomes of the endpoint embedding of the Stage1 flow map: dropped as published, kept
    with the endpoint at the own time, or kept with the endpoint at 0 (x0 in one jump)."""
    anyflow_gate: Fraction = 0.25
    """Share of the endpoint embedding in the time embedding, where `delta_policy` keeps it."""


class WanSelfGradientForcingFields(SelfGradientForcingFields):
    """Self-gradient forcing with scores on the raw time scale (0..1000) and classifier-free
    guidance."""

    self_gradient_forcing_match_context: Annotated[bool, Format(value=True)] = True
    """The replay sees the chunks the rollout committed."""
    self_gradient_forcing_cache_mode: Literal["exit"] = "exit"
    """What a chunk leaves in the cache: its clean estimate at the exit step."""
    trainer: Literal["self_gradient_forcing"] = "self_gradient_forcing"
    """Name of the training loop."""
    save_optimizer: bool = True
    """Keep optimizer state in checkpoints; without it a run cannot be resumed."""
    denoising_step_list: Annotated[Listed[Positive], Recipe(value=(1000, 750, 500, 250))] = (
        1000,
        750,
        500,
        250,
    )
    """Raw times of the rollout before the training shift, falling."""
    context_timestep: Annotated[NonNegative, Format(value=0.0)] = 0.0
    """Raw time at which a finished chunk is written to the cache."""
    ts_schedule: Annotated[bool, Format(value=False)] = False
    """Schedule of score times over training; not supported."""
    score_min_timestep: Annotated[NonNegative, Recipe(value=20.0)] = 20.0
    """Smallest raw time at which scores are compared."""
    score_max_timestep: Annotated[Positive, Recipe(value=980.0)] = 980.0
    """Largest raw time at which scores are compared; at most 1000."""
    real_guidance_scale: Annotated[NonNegative, Recipe(value=3.0)] = 3.0
    """Guidance of the teacher, by `guidance_convention`: 3 is c + 3 x (c - u) as published, known
    elsewhere as scale 4. 0 = none."""
    fake_guidance_scale: Annotated[NonNegative, Recipe(value=0.0)] = 0.0
    """Guidance of the critic. 0 = none."""
    guidance_convention: Literal["conditional", "unconditional"] = "conditional"
    """What a guidance scale s means: `conditional` c + s x (c - u), as published, 0 = none;
    `unconditional` u + s x (c - u), 1 = none. The first at s is the second at s + 1."""
    negative_prompt: Text | None = None
    """Prompt of the unconditional branch of the teacher; needed for training with guidance."""
    strict_numeric_checks: bool = False
    """Check every intermediate for non-finite numbers; slower."""


class SigmaSelfGradientForcingFields(SelfGradientForcingFields):
    """Self-gradient forcing with scores on the noise-level scale and no guidance."""

    match_context: Annotated[bool, Format(value=True)] = True
    """The replay sees the chunks the rollout committed."""
    cache_mode: Literal["exit"] = "exit"
    """What a chunk leaves in the cache: its clean estimate at the exit step."""
    num_denoising_steps: Annotated[PositiveInt, Recipe(value=4)] = 4
    """Denoising steps of the rollout."""
    score_min_sigma: Annotated[Fraction, Recipe(value=0.02)] = 0.02
    """Smallest noise level at which scores are compared."""
    score_max_sigma: Annotated[Fraction, Recipe(value=0.98)] = 0.98
    """Largest noise level at which scores are compared."""
