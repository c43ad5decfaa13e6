"""Validation, checkpoint, inference, preencode and runtime sections of MiniMax-H3."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.backbones.minimax_h3 import model_section
from solarwm.config import derived
from solarwm.config.adapter_sections import AdapterEma, SteppedCheckpoint, SteppedValidation
from solarwm.config.marks import UNKNOWN, Architecture, Derived, Facts, Format, Location, Recipe
from solarwm.config.runtime_section import RuntimeSection
from solarwm.config.sections import InferenceSection, PreencodeSection
from solarwm.config.strict import (
    Count,
    Fraction,
    Listed,
    Positive,
    PositiveInt,
    Section,
    Text,
    Weights,
    section,
)

_PROTOCOL = "solarwm.minimax_h3.codec.v1"


def evaluations(facts: Facts) -> Any:
    """30 grid points in Stage0.5, 4 steps in the few-step stages."""
    return 30 if facts.stage == "stage0p5" else 4


def clip_frames(facts: Facts) -> Any:
    """Pixel frames of a clip."""
    return facts.pixel_frames


def track_frames(facts: Facts) -> Any:
    """Stage1 drives the whole rollout with the real track; Stage2 has that of the clip only."""
    latents = model_section.rollout_latents(facts)
    if facts.stage != "stage1" or latents is UNKNOWN:
        return facts.pixel_frames
    return latents // facts.geometry.period_latents * facts.geometry.period_frames


class H3Validation(SteppedValidation):
    """Which held-out clips are generated, and how."""

    noise_seed: Annotated[Count, Recipe(value=42)] = 42
    """Seed of the start noise."""
    pixel_frames: Annotated[PositiveInt, Architecture(by=clip_frames)] = 158
    """Pixel frames of a generated clip."""
    latent_frames: Annotated[PositiveInt, Architecture(by=derived.latent_frames)] = 47
    """Latent frames of a generated clip."""
    fps: Annotated[Positive, Recipe(value=24.0)] = 24.0
    """Frames a second of written videos."""
    num_inference_steps: Annotated[PositiveInt, Derived(by=evaluations)] = 30
    """Points of the time grid in Stage0.5 (one evaluation less), steps of a chunk in Stage1 and
    Stage2."""
    max_rel_translation: Annotated[
        Positive | None, Derived(by=derived.data_guard("max_rel_translation"))
    ] = 20.0
    """Camera guard of held-out clips, in world units; null = no limit, left out = as in `data`."""
    max_camera_abs: Annotated[Positive | None, Derived(by=derived.data_guard("max_camera_abs"))] = (
        20.0
    )
    """Camera guard of held-out clips, in world units; null = no limit, left out = as in `data`."""


class H3CausalValidation(H3Validation):
    """Held-out generation chunk by chunk."""

    rollout_latents: Annotated[PositiveInt, Architecture(by=model_section.rollout_latents)] = 50
    """Latent frames rolled out: whole chunks."""
    decode_latents: Annotated[PositiveInt, Architecture(by=derived.latent_frames)] = 47
    """Latent frames decoded; the rest is cut off."""
    camera_frames: Annotated[PositiveInt, Architecture(by=track_frames)] = 158
    """Pixel frames of the camera track."""
    balance_by_dataset: bool = False
    """Take clips from every source data set in turn."""
    prepared_plan: Annotated[str | None, Location()] = None
    """A fixed list of cases instead of a selection."""


class H3RoleSource(Section):
    """Adapter one role starts from."""

    path: Annotated[Text, Location(actions=("train",))]
    """Checkpoint directory or released package."""
    weight_source: Annotated[Weights, Recipe(value="ema")] = "ema"
    """Which weights of it."""
    stage: Literal["stage0p5", "stage1"]
    """Stage it must have been trained in."""


class H3Initialization(Section):
    """Adapters the roles start from."""

    student: H3RoleSource
    """Trained and released."""
    teacher: H3RoleSource | None = None
    """Frozen judge (Stage2)."""
    critic: H3RoleSource | None = None
    """Follows the student (Stage2)."""


class H3Stage0p5Ema(AdapterEma):
    """The running average of Stage0.5."""

    decay: Annotated[Fraction, Recipe(value=0.9999)] = 0.9999
    """Share of the old average kept at each update."""


class H3Stage2Ema(AdapterEma):
    """The running average of the Stage2 student; steps are student updates."""

    decay: Annotated[Fraction, Recipe(value=0.99)] = 0.99
    """Share of the old average kept at each update."""
    start_step: Annotated[Count, Recipe(value=39)] = 39
    """Student updates before the average begins as a copy."""


class H3Checkpoint(SteppedCheckpoint):
    """Start weights, resume, retention, running average."""

    save_steps: Listed[Count] = ()
    """Further steps at which to save."""
    initialization: H3Initialization | None = None
    """Adapters the roles start from; null = a fresh adapter, or a resume."""
    weight_source: Weights = "live"
    """Weights to generate with."""
    format: Literal["solarwm", "solarwm_lora"] = "solarwm"
    """`solarwm` is a training checkpoint, `solarwm_lora` a released adapter."""


class H3Stage0p5Checkpoint(H3Checkpoint):
    """Start weights, resume, retention, running average of Stage0.5."""

    ema: H3Stage0p5Ema = section()
    """The running average."""


class H3Stage2Checkpoint(H3Checkpoint):
    """Start weights, resume, retention, running average of Stage2."""

    ema: H3Stage2Ema = section()
    """The running average."""


class H3Inference(InferenceSection):
    """What `solarwm infer` generates."""

    length_policy: Literal["fixed", "source"] = "fixed"
    """Length of the clip, or of each source's camera track (Stage2 only)."""
    fps_policy: Literal["source"] | None = None
    """Frame rate of written videos: that of each source."""
    plan: Annotated[str | None, Location(actions=("infer",))] = None
    """List of sources to generate."""
    work_dir: Annotated[str | None, Location(actions=("infer",))] = None
    """Cache of prepared conditions."""
    dataset_root: Annotated[str | None, Location(actions=("infer",))] = None
    """Root of the sources in the plan."""
    expected_step: PositiveInt | None = None
    """Step the checkpoint must be at."""
    phase: Literal["all", "prepare", "generate"] = "all"
    """Which part of the work to do."""
    stream_decode: bool = False
    """Decode piece by piece; needed for more than 960 frames."""
    save_latents: bool = False
    """Write latents beside the videos."""


class H3Preencode(PreencodeSection):
    """How clips are encoded into a latent data set."""

    codec_protocol: Annotated[str, Format(value=_PROTOCOL)] = _PROTOCOL
    """Codec."""
    output_root: Annotated[Text, Location()]
    """Directory to write."""
    samples_per_shard: PositiveInt = 8
    """Samples of one shard."""


class H3Runtime(RuntimeSection):
    """Where a run writes, on what it runs, and how often it tells."""

    weights_checkpoint: Annotated[str | None, Location(actions=("infer",))] = None
    """Weights to generate with where `checkpoint.resume_from` is not given."""
