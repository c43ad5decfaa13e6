"""The `train` section of the causal routes of the Wan families."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.backbones.wan22_core.train_section import WanTrain
from solarwm.config.marks import Format, Recipe
from solarwm.config.strict import Count, Fraction, NonNegative, Pair, PositiveInt, section
from solarwm.config.training_sections import EmaSection, OptimizerSection
from solarwm.objectives.anyflow_config import AnyFlowFields
from solarwm.objectives.flow_matching_config import BlockFlowMatchingFields
from solarwm.objectives.self_gradient_forcing_config import WanSelfGradientForcingFields


class AnyFlowEma(EmaSection):
    """Running average of AnyFlow training."""

    decay: Annotated[Fraction, Recipe(value=0.999)] = 0.999
    """Share of the old average kept at each update."""
    warmup_steps: Annotated[Count, Recipe(value=1000)] = 1000
    """Steps during which the average is a plain copy of the weights. 0 = none."""


class Stage2Ema(EmaSection):
    """Running average of the Stage2 student; steps are student updates."""

    decay: Annotated[Fraction, Recipe(value=0.99)] = 0.99
    """Share of the old average kept at each update."""
    start_step: Annotated[Count, Recipe(value=39)] = 39
    """Student updates before the average begins as a copy."""


class Stage2Optimizer(OptimizerSection):
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


class CriticOptimizer(Stage2Optimizer):
    """Optimizer of the Stage2 critic."""

    lr: Annotated[NonNegative, Recipe(value=4.0e-7)] = 4.0e-7
    """Peak learning rate. 0 keeps the weights still."""


class Stage1Train(WanTrain, BlockFlowMatchingFields):
    """Teacher-forced flow matching."""

    stage: Literal["stage1"] = "stage1"
    """Training stage."""
    causal_mode: Literal["teacher_forcing"] = "teacher_forcing"
    """Noisy chunks see clean history."""
    objective: Literal["flow_matching"] = "flow_matching"
    """Training rule."""
    max_steps: Annotated[PositiveInt, Recipe(value=20000)] = 20000
    """Optimizer steps of the whole run."""
    warmup_steps: Annotated[Count, Recipe(value=500)] = 500
    """Steps of linear learning-rate warm-up."""


class Stage1AnyFlowTrain(WanTrain, BlockFlowMatchingFields, AnyFlowFields):
    """Teacher-forced AnyFlow."""

    stage: Literal["stage1"] = "stage1"
    """Training stage."""
    causal_mode: Literal["teacher_forcing"] = "teacher_forcing"
    """Noisy chunks see clean history."""
    objective: Literal["anyflow_forward_map"] = "anyflow_forward_map"
    """Training rule."""
    objective_variant: Literal["v1_5"] = "v1_5"
    """Variant of the training rule."""
    max_steps: Annotated[PositiveInt, Recipe(value=20000)] = 20000
    """Optimizer steps of the whole run."""
    warmup_steps: Annotated[Count, Recipe(value=500)] = 500
    """Steps of linear learning-rate warm-up."""
    ema: AnyFlowEma = section()
    """The running average of the weights."""


class Stage2Train(WanTrain, BlockFlowMatchingFields, WanSelfGradientForcingFields):
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
    i2v_image_condition_dropout: Annotated[Fraction, Recipe(value=0.0)] = 0.0
    """Share of samples trained without their first frame as a condition."""
    optimizer: Stage2Optimizer = section()
    """Optimizer of the student."""
    critic_optimizer: CriticOptimizer = section()
    """Optimizer of the critic."""
    ema: Stage2Ema = section()
    """The running average of the student."""
