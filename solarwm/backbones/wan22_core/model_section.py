"""The `model` section of the Wan families, one class a stage."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from solarwm.config import derived
from solarwm.config.marks import UNKNOWN, Architecture, Facts, Format, Location, Recipe
from solarwm.config.sections import ModelSection
from solarwm.config.strict import Positive, PositiveInt, Section, Text


def is_causal(facts: Facts) -> Any:
    """True for the causal stages."""
    return facts.stage in ("stage1", "stage2")


def training_shift(facts: Facts) -> Any:
    """Published shift of the family."""
    return facts.spec.training_shift


def prior_chunks(facts: Facts) -> Any:
    """Published 5 where there are more chunks than that; fewer in short clips, so that the window
    still slides."""
    if facts.latents is None:
        return UNKNOWN
    chunks = facts.latents // facts.spec.chunk_latents
    return 5 if facts.released else max(0, min(5, chunks - 2))


def attention_latents(facts: Facts) -> Any:
    """Published 21 for the 5B model, the clip length for A14B and in the small profiles."""
    if facts.released and facts.spec.family == "wan22_ti2v_5b":
        return 21
    return derived.latent_frames(facts)


def window_latents(facts: Facts) -> Any:
    """Latents the student sees at once: its prior chunks and the current one."""
    chunks = facts.integer("model.max_prior_clean_chunks", -1)
    if chunks < 0:
        default = prior_chunks(facts)
        if default is UNKNOWN:
            return UNKNOWN
        chunks = default
    return (chunks + 1) * facts.spec.chunk_latents


class WanAssets(Section):
    """Files of the base model; relative values start at `model.base_path`."""

    transformer_config: Annotated[Text, Location(relative_to="base_path", released_only=True)]
    """`builtin`, or a path of a transformer config."""
    transformer_weights: Annotated[Text, Location(relative_to="base_path", released_only=True)]
    """Directory or file of transformer weights."""
    text_encoder: Annotated[Text, Location(relative_to="base_path", released_only=True)]
    """Weights of the text encoder."""
    tokenizer: Annotated[Text, Location(relative_to="base_path", released_only=True)]
    """Directory of the tokenizer."""
    vae: Annotated[Text, Location(relative_to="base_path", released_only=True)]
    """Weights of the video autoencoder."""


class WanAssetsModel(ModelSection):
    """What every Wan action names."""

    base_path: Annotated[str | None, Location(absolute=True, released_only=True)] = None
    """Directory of the base model (absolute); the small profiles need none."""
    assets: WanAssets | None = None
    """Files of the base model, all five; null = what ships with a small profile."""


class WanModel(WanAssetsModel):
    """Stage0.5: every latent frame sees every other."""

    timestep_shift: Annotated[Positive, Recipe(by=training_shift)] = 5.0
    """Shift of the time table towards noise: sigma -> s sigma / (1 + (s-1) sigma)."""
    causal: Annotated[bool, Format(by=is_causal)] = False
    """Latent frames see only earlier chunks and their own."""
    frame_sequence_length: Annotated[PositiveInt, Architecture(by=derived.tokens_per_latent)] = 405
    """Tokens of one latent frame."""
    num_frame_per_block: Annotated[PositiveInt, Architecture(by=derived.chunk_latents)] = 3
    """Latent frames of one causal chunk."""
    num_output_frames: Annotated[PositiveInt, Architecture(by=derived.latent_frames)] = 21
    """Latent frames of a clip."""
    local_attn_size: Annotated[int, Architecture(by=attention_latents), Field(ge=-1)] = 21
    """Latent frames that bound attention slots. -1 = no bound."""
    use_echorope: bool = True
    """Slots of cached windows end at the latest frame."""
