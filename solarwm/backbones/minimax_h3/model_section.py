"""The `model` section of MiniMax-H3, one class a stage."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.config import derived
from solarwm.config.adapter_sections import AdapterSection, compute_dtype
from solarwm.config.marks import UNKNOWN, Architecture, Facts, Format, Location, Recipe
from solarwm.config.sections import ModelSection
from solarwm.config.strict import Count, Dtype, PositiveInt, Text, section


def head_dim(facts: Facts) -> Any:
    """Channels of one attention head."""
    return facts.dims.head_dim


def camera_start(facts: Facts) -> Any:
    """First head channel behind the three rotary axes."""
    return 6 * facts.profile.extras["rope_freq_dim"]


def rollout_latents(facts: Facts) -> Any:
    """Latents of the whole chunks that cover a clip."""
    if facts.latents is None:
        return UNKNOWN
    chunk = facts.spec.chunk_latents
    return -(-facts.latents // chunk) * chunk


def target_latents(facts: Facts) -> Any:
    """Latents that training supervises: whole chunks in Stage1, all of a clip elsewhere."""
    if facts.latents is None:
        return UNKNOWN
    chunk = facts.spec.chunk_latents
    return facts.latents // chunk * chunk if facts.stage == "stage1" else facts.latents


def prior_chunks(facts: Facts) -> Any:
    """Published 5; fewer in short clips, so that the window still slides."""
    latents = rollout_latents(facts)
    if facts.released or latents is UNKNOWN:
        return 5
    return min(5, max(1, latents // facts.spec.chunk_latents - 2))


class H3Adapter(AdapterSection):
    """The low-rank adapter that is trained."""

    expected_target_linear_modules: Annotated[
        PositiveInt, Architecture(by=derived.extra("adapter_target_linears"))
    ] = 312
    """Linear layers the adapter must find."""
    expected_trainable_parameters: Annotated[
        PositiveInt | None,
        Architecture(by=derived.extra("adapter_trainable_parameters"), adjustable=True),
    ] = 2075394048
    """Parameters the adapter must have; null = not checked."""


class H3CodecModel(ModelSection):
    """What every action names."""

    family: Literal["minimax_h3"]
    """Backbone family."""
    profile: Literal["released", "tiny"] = "released"
    """`released`, or `tiny` for a CPU."""
    checkpoint_path: Annotated[str | None, Location(released_only=True)] = None
    """Directory of the base model; `tiny` needs none."""
    architecture: Annotated[str, Format(value="minimax-h3-33b")] = "minimax-h3-33b"
    """Name of the architecture."""
    camera_translation_transform: Annotated[Literal["linear", "logd4"], Format(value="logd4")] = (
        "logd4"
    )
    """What is done to relative translations before they enter attention."""
    latent_channels: Annotated[PositiveInt, Architecture(by=derived.latent_channels)] = 24
    """Channels of a latent."""
    latent_height: Annotated[PositiveInt, Architecture(by=derived.latent_height)] = 48
    """Rows of the latent grid."""
    latent_width: Annotated[PositiveInt, Architecture(by=derived.latent_width)] = 84
    """Columns of the latent grid."""
    training_mode: Annotated[str, Format(value="lora")] = "lora"
    """What is trained: an adapter on a frozen base."""
    torch_dtype: Annotated[Dtype, Recipe(by=compute_dtype)] = "bfloat16"
    """Number type of the base."""
    load_conditioners: Annotated[bool, Format(value=False)] = False
    """Load further condition models; not supported."""
    transformer_subfolder: Annotated[str, Format(value="transformer")] = "transformer"
    """Directory of the transformer below `checkpoint_path`."""
    transformer_device_map: Annotated[str | None, Recipe(value=None)] = None
    """Placement of the transformer while loading; null = by the run."""
    attention_head_dim: Annotated[PositiveInt, Architecture(by=head_dim)] = 128
    """Channels of one attention head."""
    camera_prope_head_dim_start: Annotated[Count, Architecture(by=camera_start)] = 96
    """First head channel that carries the camera."""
    camera_prope_head_dim_end: Annotated[PositiveInt, Architecture(by=head_dim)] = 128
    """One past the last head channel that carries the camera."""
    rows_per_latent: Annotated[PositiveInt, Architecture(by=derived.tokens_per_latent)] = 1008
    """Rows (tokens) of one latent frame."""
    num_frames_per_block: Annotated[PositiveInt, Architecture(by=derived.chunk_latents)] = 5
    """Latent frames of one causal chunk."""
    max_prior_clean_chunks: Annotated[Count, Architecture(by=prior_chunks, adjustable=True)] = 5
    """Clean chunks before its own that a noisy chunk sees."""
    attention_backend: Annotated[
        Literal["auto", "sdpa", "cudnn", "flash", "flex"],
        Recipe(by=derived.by_profile(released="flash", other="auto")),
    ] = "flash"
    """Attention kernel; `auto` takes the fastest the device has."""
    adapter: H3Adapter = section()
    """The adapter."""
    revision: str | None = None
    """Revision of the base model, recorded with every checkpoint."""


class H3CausalModel(H3CodecModel):
    """Stage1: chunks see a window of clean history."""

    attention_backend: Annotated[
        Literal["auto", "sdpa", "cudnn", "flash", "flex"],
        Recipe(by=derived.by_profile(released="flex", other="auto")),
    ] = "flex"
    """Attention kernel; `auto` takes the fastest the device has."""


class H3Stage2Model(H3CausalModel):
    """Stage2: a causal student judged by bidirectional teacher and critic."""

    student_rope_mode: Annotated[str, Format(value="sliding_local")] = "sliding_local"
    """Time positions of the student: every window starts at the same origin."""
    score_rope_mode: Annotated[str, Format(value="native_absolute")] = "native_absolute"
    """Time positions of teacher and critic."""


class H3PreencodeModel(H3CodecModel):
    """The codec that encodes clips."""

    codec_identity: Text
    """Name of the codec, recorded with every record."""
