"""The `train` section of MiniMax-H3, one class a route."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.config import derived
from solarwm.config.adapter_sections import AdapterFsdp, MasterOptimizer, compute_dtype
from solarwm.config.marks import Derived, Facts, Format, Recipe
from solarwm.config.strict import (
    Count,
    Dtype,
    Fraction,
    NonNegative,
    Pair,
    Positive,
    PositiveInt,
    section,
)
from solarwm.config.training_sections import Strategy, TrainSection
from solarwm.objectives.anyflow_config import FiniteDifferenceAnyFlowFields
from solarwm.objectives.self_gradient_forcing_config import SigmaSelfGradientForcingFields


def base_shard(facts: Facts) -> Any:
    """Ranks of one node in the published recipe; null = no fixed size."""
    return 8 if facts.released else None


class H3Stage1Optimizer(MasterOptimizer):
    """Optimizer of Stage1."""

    lr: Annotated[NonNegative, Recipe(value=3.0e-5)] = 3.0e-5
    """Peak learning rate. 0 keeps the weights still."""
    warmup_steps: Annotated[Count, Recipe(value=1000)] = 1000
    """Steps of linear learning-rate warm-up."""


class H3Stage2Optimizer(MasterOptimizer):
    """Optimizer of the Stage2 student."""

    lr: Annotated[NonNegative, Recipe(value=2.0e-6)] = 2.0e-6
    """Peak learning rate. 0 keeps the weights still."""
    betas: Annotated[Pair[Fraction], Recipe(value=(0.0, 0.999))] = (0.0, 0.999)
    """Decay of the first and second moment."""
    weight_decay: Annotated[NonNegative, Recipe(value=0.0)] = 0.0
    """Decoupled weight decay a step, times the learning rate. 0 = none."""
    grad_clip: Annotated[NonNegative, Recipe(value=10.0)] = 10.0
    """Largest global L2 norm of the gradient. 0 = no clipping; non-finite norms stop the run either
    way."""
    warmup_steps: Annotated[Count, Recipe(value=0)] = 0
    """Updates of linear warm-up."""
    min_lr_ratio: Annotated[Fraction, Recipe(value=1.0)] = 1.0
    """Learning rate at the end over its peak. 1 = constant after warm-up."""


class H3CriticOptimizer(H3Stage2Optimizer):
    """Optimizer of the Stage2 critic."""

    lr: Annotated[NonNegative, Recipe(value=4.0e-7)] = 4.0e-7
    """Peak learning rate. 0 keeps the weights still."""


class H3Stage2Fsdp(AdapterFsdp):
    """Sharding of the frozen bases of three roles."""

    sharding_strategy: Annotated[
        Strategy,
        Recipe(by=derived.by_profile(released="HYBRID_SHARD", other="none")),
    ] = "HYBRID_SHARD"
    """How weights are spread: replicated, sharded everywhere, or sharded inside a node."""
    frozen_base_shard_size: Annotated[PositiveInt | None, Derived(by=base_shard)] = 8
    """Ranks that share one copy of the base; null = those of a node."""


class H3Train(TrainSection):
    """What every H3 training route has."""

    precision: Annotated[Dtype, Recipe(by=compute_dtype)] = "bfloat16"
    """Number type of the forward pass."""
    video_timestep_shift: Annotated[Positive, Recipe(value=12.0)] = 12.0
    """Shift of video noise levels towards noise."""
    audio_timestep_shift: Annotated[Positive, Recipe(value=3.0)] = 3.0
    """Shift of audio noise levels towards noise."""
    keyframe_noise_augmentation: Annotated[Fraction, Recipe(value=0.999)] = 0.999
    """Time of the anchor frame; 1 = clean."""
    audio_loss_weight: Annotated[
        NonNegative, Format(value=0.0, reason="sound is a condition only")
    ] = 0.0
    """Weight of the audio loss."""
    optimizer: MasterOptimizer = section()
    """Optimizer of the adapter."""
    fsdp: AdapterFsdp = section()
    """Sharding and recomputation."""


class H3Stage0p5Train(H3Train):
    """Bidirectional flow matching."""

    stage: Literal["stage0p5"] = "stage0p5"
    """Training stage."""
    causal_mode: Literal["bidirectional"] = "bidirectional"
    """Every latent frame sees every other."""
    objective: Literal["flow_matching"] = "flow_matching"
    """Training rule."""


class H3Stage1Train(H3Train, FiniteDifferenceAnyFlowFields):
    """Teacher-forced AnyFlow."""

    stage: Literal["stage1"] = "stage1"
    """Training stage."""
    causal_mode: Literal["teacher_forcing"] = "teacher_forcing"
    """Noisy chunks see clean history."""
    objective: Literal["anyflow_forward_map"] = "anyflow_forward_map"
    """Training rule."""
    objective_variant: Literal["v1_5"] = "v1_5"
    """Variant of the training rule."""
    optimizer: H3Stage1Optimizer = section()
    """Optimizer of the adapter."""


class H3Stage2Train(H3Train, SigmaSelfGradientForcingFields):
    """Distribution matching by self-gradient forcing."""

    stage: Literal["stage2"] = "stage2"
    """Training stage."""
    causal_mode: Literal["self_gradient_forcing"] = "self_gradient_forcing"
    """The student sees its own rollout."""
    objective: Literal["flow_matching"] = "flow_matching"
    """Training rule of the student's parameterisation."""
    grad_accum: Annotated[
        PositiveInt, Format(value=1, reason="Stage2 makes one update from one batch")
    ] = 1
    """Micro batches added up before one optimizer step."""
    max_steps: Annotated[PositiveInt, Recipe(value=4000)] = 4000
    """Outer steps; the student is updated in every sixth, eleventh, sixteenth... of them."""
    tail_camera_policy: Annotated[str, Format(value="repeat_last_latent")] = "repeat_last_latent"
    """Cameras of latents behind the clip: the last one again."""
    audio_condition_policy: Annotated[str, Format(value="fixed_noised_silence_per_rollout")] = (
        "fixed_noised_silence_per_rollout"
    )
    """Sound condition: silence at one noise level for a whole rollout."""
    optimizer: H3Stage2Optimizer = section()
    """Optimizer of the student."""
    critic_optimizer: H3CriticOptimizer = section()
    """Optimizer of the critic."""
    fsdp: H3Stage2Fsdp = section()
    """Sharding and recomputation."""
