"""Fields of `train` that the native rectified flow of LTX reads."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config.marks import Format, Recipe
from solarwm.config.strict import Fraction, Positive, Section, section


class TimestepSamplingSection(Section):
    """How noise levels are drawn."""

    mode: Literal["shifted_logit_normal"] = "shifted_logit_normal"
    """Logit-normal with a shift that grows with the number of tokens."""
    std: Annotated[Positive, Recipe(value=1.0)] = 1.0
    """Standard deviation before the sigmoid."""
    epsilon: Annotated[Fraction, Recipe(value=1.0e-3)] = 1.0e-3
    """Smallest noise level of the uniform part; values below it are mirrored."""
    uniform_probability: Annotated[Fraction, Recipe(value=0.1)] = 0.1
    """Share of samples drawn uniformly instead."""


class RectifiedFlowFields(Section):
    """Rectified flow with the first latent frame kept clean."""

    first_frame_condition_dropout: Annotated[
        Fraction,
        Format(value=0.0, reason="the first latent frame is always a condition in this objective"),
    ] = 0.0
    """Share of samples trained without their first frame as a condition."""
    timestep_sampling: TimestepSamplingSection = section()
    """How noise levels are drawn."""
