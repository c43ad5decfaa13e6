"""The `train` section of the Wan families, one class a route."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config import derived
from solarwm.config.marks import Recipe
from solarwm.config.strict import Count, section
from solarwm.config.training_sections import EmaSection, FsdpSection, Strategy, TrainSection
from solarwm.objectives.flow_matching_config import FlowMatchingFields


class WanFullShard(FsdpSection):
    """Sharding of the A14B family."""

    strategy: Annotated[
        Strategy,
        Recipe(by=derived.by_profile(released="FULL_SHARD", other="none")),
    ] = "FULL_SHARD"
    """How weights are spread: replicated, sharded everywhere, or sharded inside a node."""


class WanTrain(TrainSection):
    """What every Wan training route has."""

    ema: EmaSection = section()
    """The running average of the weights."""
    fsdp: FsdpSection = section()
    """Sharding and recomputation."""
    allow_camera_translation_transform_change_on_init: bool = False
    """Start from weights trained with another translation transform; only with `weights_only`."""


class Stage0p5Train(WanTrain, FlowMatchingFields):
    """Bidirectional flow matching."""

    stage: Literal["stage0p5"] = "stage0p5"
    """Training stage."""
    causal_mode: Literal["bidirectional"] = "bidirectional"
    """Every latent frame sees every other."""
    objective: Literal["flow_matching"] = "flow_matching"
    """Training rule."""
    warmup_steps: Annotated[Count, Recipe(value=1000)] = 1000
    """Steps of linear learning-rate warm-up."""


class ImageStage0p5Train(Stage0p5Train):
    """Bidirectional flow matching of the A14B family."""

    fsdp: WanFullShard = section()
    """Sharding and recomputation."""
