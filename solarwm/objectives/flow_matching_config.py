"""Fields of `train` that flow matching reads."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config.marks import Format, Recipe
from solarwm.config.strict import Fraction, Section


class FlowMatchingFields(Section):
    """Flow matching with one time for a whole video."""

    timestep_mode: Annotated[
        Literal["uniform_per_video", "per_block"], Format(value="uniform_per_video")
    ] = "uniform_per_video"
    """Whether all frames share one time, or each causal chunk draws its own."""
    num_train_timesteps: Annotated[int, Format(value=1000)] = 1000
    """Length of the training time table; raw times run from 0 to this."""
    i2v_image_condition_dropout: Annotated[Fraction, Recipe(value=0.1)] = 0.1
    """Share of samples trained without their first frame as a condition."""


class BlockFlowMatchingFields(FlowMatchingFields):
    """Flow matching with one time for each causal chunk."""

    timestep_mode: Annotated[
        Literal["uniform_per_video", "per_block"], Format(value="per_block")
    ] = "per_block"
    """Whether all frames share one time, or each causal chunk draws its own."""
    noise_augmentation_max_timestep: Annotated[int, Format(value=0)] = 0
    """Largest raw time of noise added to the clean history; only 0 is supported."""
