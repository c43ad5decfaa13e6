"""Fields of `train` that the AnyFlow forward map (v1.5) reads."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config.marks import Format, Location, Recipe
from solarwm.config.strict import Fraction, Positive, RelativeKey, Section


class AnyFlowFields(Section):
    """A map from any time to any earlier time, trained beside the velocity, with guidance folded
    in."""

    anyflow_variant: Literal["v1_5"] = "v1_5"
    """Variant of the rule."""

    anyflow_weight_type: Literal["gaussian"] = "gaussian"
    """Weight of the loss over time: a bell around the middle, mean 1 over the time table."""
    anyflow_gate: Annotated[Fraction, Recipe(value=0.25)] = 0.25
    """Share of the endpoint embedding in the time embedding."""
    anyflow_deltatime_type: Annotated[Literal["r"], Format(value="r")] = "r"
    """What the second embedding receives: the endpoint itself."""
    anyflow_epsilon: Annotated[Positive, Recipe(value=5.0)] = 5.0
    """Half width of the finite difference along time, in raw time units (0..1000)."""
    anyflow_diffusion_ratio: Annotated[Fraction, Recipe(value=0.5)] = 0.5
    """Share of samples whose endpoint is their own time."""
    anyflow_consistency_ratio: Annotated[Fraction, Recipe(value=0.25)] = 0.25
    """Share of samples whose endpoint is 0; the rest draws it in between."""
    anyflow_fuse_guidance_scale: Annotated[Positive, Recipe(value=3.0)] = 3.0
    """Guidance scale folded into the target. 1 = none."""
    anyflow_negative_embedding: Annotated[RelativeKey | None, Location(relative_to="base_path")] = (
        None
    )
    """Encoded negative prompt, below `model.base_path`; null = the empty prompt, encoded at the
    start."""


class FiniteDifferenceAnyFlowFields(Section):
    """The same map under the names of MiniMax-H3, without guidance."""

    anyflow_gate: Annotated[Fraction, Recipe(value=0.25)] = 0.25
    """Share of the endpoint embedding in the time embedding."""
    deltatime_type: Annotated[Literal["r"], Format(value="r")] = "r"
    """What the second embedding receives: the endpoint itself."""
    finite_difference_epsilon: Annotated[Positive, Recipe(value=5.0)] = 5.0
    """Half width of the finite difference along time, in raw time units (0..1000)."""
    diffusion_ratio: Annotated[Fraction, Recipe(value=0.5)] = 0.5
    """Share of samples whose endpoint is their own time."""
    consistency_ratio: Annotated[Fraction, Recipe(value=0.25)] = 0.25
    """Share of samples whose endpoint is 0; the rest draws it in between."""
    weight_type: Literal["gaussian"] = "gaussian"
    """Weight of the loss over time: a bell around the middle, mean 1 over the time table."""
