"""The `model` section of the causal routes of the Wan families."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from solarwm.backbones.wan22_core.model_section import (
    WanModel,
    attention_latents,
    is_causal,
    prior_chunks,
    window_latents,
)
from solarwm.config.marks import Architecture, Format
from solarwm.config.strict import Count, PositiveInt

_BINDING_ECHO = "causal stages place window slots relative to the block"


class WanCausalModel(WanModel):
    """Stage1: chunks see a window of clean history."""

    causal: Annotated[bool, Format(by=is_causal)] = True
    """Latent frames see only earlier chunks and their own."""
    max_prior_clean_chunks: Annotated[Count, Architecture(by=prior_chunks, adjustable=True)] = 5
    """Clean chunks before its own that a noisy chunk sees."""
    use_echorope: Annotated[bool, Format(value=False, reason=_BINDING_ECHO)] = False
    """Slots of cached windows end at the latest frame."""


class WanStage2Model(WanCausalModel):
    """Stage2: a causal student judged by bidirectional teacher and critic."""

    local_attn_size: Annotated[int, Architecture(by=window_latents), Field(ge=-1)] = 18
    """Latent frames the student sees at once."""
    score_local_attn_size: Annotated[PositiveInt, Architecture(by=attention_latents)] = 21
    """Latent frames that bound the slots of teacher and critic."""
    sink_size: Annotated[
        int, Format(value=0, reason="attention sinks are not part of this route")
    ] = 0
    """Latent frames always kept in the window."""
    rope_train_frames: Annotated[PositiveInt, Architecture(by=attention_latents)] = 21
    """Latent frames the position table was trained on."""
    score_use_echorope: Annotated[bool, Format(value=True)] = True
    """Slot rule of teacher and critic."""
