"""Sections about how weights change: optimizer, running average, sharding, batch."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config import derived
from solarwm.config.marks import Derived, Recipe
from solarwm.config.strict import (
    Count,
    Device,
    Dtype,
    Fraction,
    NonNegative,
    Pair,
    Positive,
    PositiveInt,
    Section,
    section,
)

Strategy = Literal["none", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"]
"""`none` and `NO_SHARD` replicate; `HYBRID_SHARD` shards inside a node, replicates across."""


class OptimizerSection(Section):
    """AdamW with decoupled weight decay, and its learning-rate schedule."""

    lr: Annotated[NonNegative, Recipe(value=5.0e-5)] = 5.0e-5
    """Peak learning rate. 0 keeps the weights still."""
    betas: Annotated[Pair[Fraction], Recipe(value=(0.9, 0.95))] = (0.9, 0.95)
    """Decay of the first and second moment."""
    eps: Annotated[Positive, Recipe(value=1.0e-8)] = 1.0e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[NonNegative, Recipe(value=0.01)] = 0.01
    """Decoupled weight decay a step, times the learning rate. 0 = none."""
    grad_clip: Annotated[NonNegative, Recipe(value=1.0)] = 1.0
    """Largest global L2 norm of the gradient. 0 = no clipping; non-finite norms stop the run either
    way."""
    min_lr_ratio: Annotated[Fraction, Recipe(value=0.1)] = 0.1
    """Learning rate at `max_steps` over its peak; the cosine ends there. 1 = constant after
    warm-up."""


class AverageSection(Section):
    """The running average of the weights; each family adds when it is updated."""

    enabled: Annotated[bool, Recipe(value=True)] = True
    """Keep a running average."""
    device: Annotated[Device, Recipe(value="cuda")] = "auto"
    """Where the average lives; `auto` = beside the weights."""
    dtype: Annotated[Dtype, Recipe(value="float32")] = "float32"
    """Number type of the average."""
    sharded: Annotated[bool, Recipe(value=True)] = True
    """Each rank keeps only its own shard."""
    decay: Annotated[Fraction, Recipe(value=0.9999)] = 0.9999
    """Share of the old average kept at each update."""
    start_step: Annotated[Count, Recipe(value=0)] = 0
    """Optimizer steps before the first update."""


class EmaSection(AverageSection):
    """The running average of the weights."""

    update_every: Annotated[PositiveInt, Recipe(value=1)] = 1
    """Optimizer steps between updates."""
    warmup_steps: Annotated[Count, Recipe(value=0)] = 0
    """Steps during which the average is a plain copy of the weights. 0 = none."""


class ShardingSection(Section):
    """How parameters are gathered and recomputed; each family adds how they are spread."""

    activation_checkpointing: Annotated[
        bool, Derived(by=derived.by_profile(released=True, other=False))
    ] = True
    """Recompute block activations in the backward pass to save memory."""
    param_dtype: Annotated[
        Dtype | None, Recipe(by=derived.by_profile(released="bfloat16", other="float32"))
    ] = "bfloat16"
    """Number type parameters are gathered and computed in; null = as stored."""
    reduce_dtype: Annotated[Dtype | None, Recipe(value="float32")] = "float32"
    """Number type of gradient sums across ranks; null = as computed."""
    buffer_dtype: Annotated[
        Dtype | None, Recipe(by=derived.by_profile(released="bfloat16", other=None))
    ] = None
    """Number type of buffers; null = as stored."""


class FsdpSection(ShardingSection):
    """How parameters are spread over ranks and recomputed."""

    strategy: Annotated[
        Strategy,
        Recipe(by=derived.by_profile(released="HYBRID_SHARD", other="none")),
    ] = "HYBRID_SHARD"
    """How weights are spread: replicated, sharded everywhere, or sharded inside a node."""
    recompute_every: PositiveInt = 1
    """With activation checkpointing, recompute every n-th block and keep the others. 1 = all."""
    cpu_offload: bool = False
    """Keep shards of weights, gradients and optimizer state in host memory; needs a sharded
    strategy."""
    cast_root_forward_inputs: bool = False
    """Cast float inputs of the root module to `param_dtype`. Times and cameras stay fp32 in
    `corrected` numerics."""


class TrainSection(Section):
    """What every training route has: the batch, the length, the optimizer."""

    stage: str
    """Training stage; with the next three fields it names the route."""
    causal_mode: str
    """Order in which latent frames see each other."""
    objective: str
    """Training rule."""
    objective_variant: str | None = None
    """Variant of the training rule, where it has one."""
    micro_batch_size: Annotated[PositiveInt, Recipe(value=1)] = 1
    """Samples of one forward pass on one logical data-parallel rank."""
    grad_accum: Annotated[PositiveInt, Recipe(value=1)] = 1
    """Micro batches added up before one optimizer step."""
    global_batch_size: Annotated[PositiveInt, Derived(by=derived.global_batch)] = 1
    """Samples of one optimizer step = world / sequence parallel x micro batch x accumulation."""
    max_steps: Annotated[PositiveInt, Recipe(value=30000)] = 30000
    """Optimizer steps of the whole run (outer steps in Stage2)."""
    on_non_finite: Literal["stop", "skip"] = "stop"
    """A loss or gradient that is not finite: `stop` the run, or `skip` that update and count it."""
    max_non_finite: Count = 10
    """Updates that `skip` may pass over in the whole run."""
    optimizer: OptimizerSection = section()
    """Optimizer of the student."""
    fsdp: ShardingSection = section()
    """Sharding and recomputation."""
