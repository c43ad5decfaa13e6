"""Sections of the families that train adapters on a frozen base (LTX-2.5, MiniMax-H3)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.config import derived
from solarwm.config.marks import Architecture, Facts, Format, Location, Recipe
from solarwm.config.sections import CheckpointSection, PassSection, RunConfig, ValidationSection
from solarwm.config.strict import (
    Count,
    Dtype,
    Fraction,
    Listed,
    NonNegative,
    PositiveInt,
    Section,
    Weights,
    section,
)
from solarwm.config.training_sections import (
    AverageSection,
    OptimizerSection,
    ShardingSection,
    Strategy,
)


def compute_dtype(facts: Facts) -> Any:
    """bfloat16 as published, float32 in the small profiles."""
    return "bfloat16" if facts.released else "float32"


class AdapterSection(Section):
    """The low-rank adapter that is trained."""

    type: Literal["lora"] = "lora"
    """Kind of adapter."""
    target: Annotated[str, Format(value="block_qkvo_ffn")] = "block_qkvo_ffn"
    """Linear layers adapted: attention projections and feed-forward of every block."""
    rank: Annotated[
        PositiveInt, Architecture(by=derived.extra("adapter_rank"), adjustable=True)
    ] = 384
    """Rank of the adapter."""
    alpha: Annotated[
        PositiveInt, Architecture(by=derived.extra("adapter_rank"), adjustable=True)
    ] = 384
    """Scale of the adapter times its rank."""
    dropout: Annotated[Fraction, Recipe(value=0.0)] = 0.0
    """Dropout before the adapter."""
    bias: Annotated[str, Format(value="none")] = "none"
    """Biases that are trained."""
    dtype: Annotated[Dtype, Recipe(by=compute_dtype)] = "bfloat16"
    """Number type of adapter weights; the optimizer keeps fp32 masters."""


class MasterOptimizer(OptimizerSection):
    """AdamW on fp32 master copies of low-precision weights."""

    name: Annotated[str, Format(value="fp32_master_adamw")] = "fp32_master_adamw"
    """Name of the optimizer."""
    lr: Annotated[NonNegative, Recipe(value=1.0e-4)] = 1.0e-4
    """Peak learning rate. 0 keeps the weights still."""
    warmup_steps: Annotated[Count, Recipe(value=500)] = 500
    """Steps of linear learning-rate warm-up."""


class AdapterFsdp(ShardingSection):
    """Sharding of the frozen base; adapters are replicated."""

    sharding_strategy: Annotated[
        Strategy,
        Recipe(by=derived.by_profile(released="FULL_SHARD", other="none")),
    ] = "FULL_SHARD"
    """How weights are spread: replicated, sharded everywhere, or sharded inside a node."""
    preserve_checkpoint_dtype: Annotated[bool, Recipe(value=True)] = True
    """Keep the number type of every tensor of the base."""
    param_dtype: Annotated[Dtype | None, Recipe(value=None)] = None
    """Number type parameters are gathered and computed in; null = as stored."""
    buffer_dtype: Annotated[Dtype | None, Recipe(value=None)] = None
    """Number type of buffers; null = as stored."""

    @property
    def strategy(self) -> str:
        """How weights are spread, as Wan configs say it."""
        return self.sharding_strategy

    @property
    def cast_root_forward_inputs(self) -> bool:
        """Inputs of the root module keep their number type."""
        return False


class AdapterEma(AverageSection):
    """The running average of the adapter."""

    decay: Annotated[Fraction, Recipe(value=0.999)] = 0.999
    """Share of the old average kept at each update."""
    update_every_steps: Annotated[PositiveInt, Recipe(value=1)] = 1
    """Optimizer steps between updates."""
    trainable_only: Annotated[bool, Format(value=True)] = True
    """Only trained weights are averaged; the base is frozen."""

    @property
    def update_every(self) -> int:
        """Optimizer steps between updates, as Wan configs say it."""
        return self.update_every_steps

    @property
    def warmup_steps(self) -> int:
        """The average starts at once."""
        return 0


class SteppedValidation(ValidationSection):
    """Validation with its cadence, and passes that may be given by name."""

    smoke_step: Count = 0
    """One early step at which to validate. 0 = none."""
    validate_every_steps: Count = 0
    """Optimizer steps between validations. 0 = off."""
    passes: Listed[Weights | PassSection] = ()
    """Passes: `live`, `ema`, or `{name, weights, camera}`."""

    @property
    def named_passes(self) -> tuple[PassSection, ...]:
        """The passes, each as a section."""
        return tuple(
            PassSection(name=item, weights=item) if isinstance(item, str) else item
            for item in self.passes
        )


class SteppedCheckpoint(CheckpointSection):
    """Checkpoints with their cadence and the running average they hold."""

    save_every_steps: Count = 500
    """Optimizer steps between checkpoints. 0 = off."""
    save_optimizer: bool = True
    """Keep optimizer state; without it a run cannot be resumed."""
    resume_from: Annotated[str | None, Location(absolute=True)] = None
    """Checkpoint directory to continue from, or to generate with; null = none."""
    ema: AdapterEma = section()
    """The running average."""


class AdapterRun(RunConfig):
    """A run whose cadence and running average live in other sections than those of Wan."""

    @property
    def save_every(self) -> int:
        """Optimizer steps between checkpoints, 0 = off."""
        return self.checkpoint.save_every_steps

    @property
    def validate_every(self) -> int:
        """Optimizer steps between validations, 0 = off."""
        return self.validation.validate_every_steps

    @property
    def ema(self) -> AverageSection:
        """The running average of the student."""
        return self.checkpoint.ema

    @property
    def warmup_steps(self) -> int:
        """Steps of linear learning-rate warm-up."""
        return self.train.optimizer.warmup_steps
