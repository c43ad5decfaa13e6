"""Validation, checkpoint, inference and preencode sections of the Wan families."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from solarwm.backbones.wan22_core.data_section import latent_schema
from solarwm.config import derived
from solarwm.config.marks import UNKNOWN, Derived, Facts, Format, Location, Recipe
from solarwm.config.sections import (
    CheckpointSection,
    DistributedSection,
    InferenceSection,
    PassSection,
    PreencodeSection,
    ValidationSection,
)
from solarwm.config.strict import (
    Component,
    Count,
    Listed,
    NonNegative,
    Positive,
    PositiveInt,
    Section,
    Text,
    Weights,
)

Transform = Literal["linear", "logd4"]
_RELEASED_ROLLOUT = 60


def pass_mode(facts: Facts) -> Any:
    """`bidirectional` in Stage0.5, else chunk by chunk."""
    return "bidirectional" if facts.stage == "stage0p5" else "autoregressive"


def pass_solver(facts: Facts) -> Any:
    """The solver that belongs to the stage and objective."""
    if facts.stage == "stage2":
        return "self_forcing"
    return "flowmap" if facts.get("train.objective") == "anyflow_forward_map" else "unipc"


def pass_steps(facts: Facts) -> Any:
    """50 for velocity solvers, 4 for the few-step ones."""
    return 50 if pass_solver(facts) == "unipc" else 4


def rollout_latents(facts: Facts) -> Any:
    """The clip in Stage0.5; 60 latents in the published causal stages; null where the camera track
    decides."""
    if facts.get("inference.length") == "camera":
        return None
    if facts.stage == "stage0p5" or not facts.released:
        return derived.latent_frames(facts)
    return _RELEASED_ROLLOUT


def longest_rollout(facts: Facts) -> Any:
    """The longest rollout of the passes, or that of the stage."""
    passes = facts.get("validation.passes", ())
    written = [item.get("rollout_latent_frames") for item in passes if isinstance(item, dict)]
    lengths = [length for length in written if isinstance(length, int)]
    return max(lengths) if lengths else rollout_latents(facts)


def least_rollout(facts: Facts) -> Any:
    """The clip length where rollouts vary by source; null where they do not."""
    variable = facts.get("validation.variable_rollout_by_source") is True
    return derived.latent_frames(facts) if variable else None


def plan_frames(facts: Facts) -> Any:
    """Pixel frames of the longest rollout where rollouts vary by source; null where they do not."""
    longest = longest_rollout(facts)
    if facts.get("validation.variable_rollout_by_source") is not True or not isinstance(
        longest, int
    ):
        return None
    frames = facts.geometry.frames(longest)
    return UNKNOWN if frames is None else frames


def layout_of_length(facts: Facts) -> Any:
    """Data-set layout for camera-length generation, else one transaction."""
    return "dataset_triplet_v1" if facts.get("inference.length") == "camera" else "transaction_v1"


class WanPass(PassSection):
    """One way of generating every validation case."""

    mode: Annotated[Literal["bidirectional", "autoregressive"], Derived(by=pass_mode)] = (
        "bidirectional"
    )
    """All latents at once, or chunk by chunk."""
    solver: Annotated[
        Literal["unipc", "euler", "flowmap", "self_forcing"], Derived(by=pass_solver)
    ] = "unipc"
    """How the path from noise is walked."""
    num_inference_steps: Annotated[PositiveInt, Derived(by=pass_steps)] = 50
    """Model evaluations of one sample (of one chunk when autoregressive)."""
    rollout_latent_frames: Annotated[PositiveInt | None, Derived(by=rollout_latents)] = None
    """Latent frames generated (the most, where it varies by source); null = as long as the camera
    track."""
    variable_rollout_by_source: bool | None = None
    """Overrides the value of the section."""
    min_rollout_latent_frames: PositiveInt | None = None
    """Overrides the value of the section."""
    fixed_plan_pixel_frames: PositiveInt | None = None
    """Overrides the value of the section."""


class WanValidation(ValidationSection):
    """Which held-out clips are generated, and how."""

    noise_seed: Annotated[Count, Recipe(value=42)] = 42
    """Seed of the start noise."""
    max_rel_translation: Annotated[
        Positive | None, Derived(by=derived.data_guard("max_rel_translation"))
    ] = None
    """Camera guard of held-out clips, in world units; null = no limit, left out = as in `data`."""
    max_camera_abs: Annotated[Positive | None, Derived(by=derived.data_guard("max_camera_abs"))] = (
        None
    )
    """Camera guard of held-out clips, in world units; null = no limit, left out = as in `data`."""
    variable_rollout_by_source: bool = False
    """Roll out as far as each source goes, up to the length of the pass."""
    min_rollout_latent_frames: Annotated[PositiveInt | None, Derived(by=least_rollout)] = None
    """Shortest rollout in latent frames; only where it varies by source."""
    fixed_plan_pixel_frames: Annotated[PositiveInt | None, Derived(by=plan_frames)] = None
    """Pixel frames of the longest rollout; only where it varies by source."""
    context_noise: NonNegative = 0.0
    """Raw time of noise added to finished chunks before they enter the cache. 0 = none."""
    passes: Listed[WanPass] = ()
    """Passes; every case is generated by each."""


class SourceContract(Section):
    """What the source of initial weights must be."""

    stage: Literal["stage0p5", "stage1", "stage2"]
    """Stage it was trained in."""
    objective: Text
    """Rule it was trained with."""
    camera_translation_transform: Transform
    """Translation transform it was trained with."""


class RoleSource(Section):
    """Weights one role starts from."""

    path: Annotated[Text, Location(absolute=True, actions=("train",))]
    """A single `model.pt` or a checkpoint directory (absolute)."""
    weights: Weights
    """Which weights of it."""
    expected_stage: Literal["stage0p5", "stage1", "stage2"]
    """Stage it must have been trained in."""
    expected_objective: Text
    """Rule it must have been trained with, `objective[:variant]`."""
    expected_camera_translation_transform: Transform = "linear"
    """Translation transform it must have been trained with."""
    allow_anyflow_delta_drop: bool = False
    """Drop the four tensors of the endpoint embedding, which this role does not have."""


class RoleSources(Section):
    """Weights the three roles start from."""

    student: RoleSource
    """Trained and released."""
    teacher: RoleSource
    """Frozen judge."""
    critic: RoleSource
    """Follows the student."""


class WanCheckpoint(CheckpointSection):
    """Start weights, resume, retention."""

    mode: Literal["none", "weights_only", "full_resume", "stage2_roles"] = "none"
    """`none` starts from the base model; the option `--resume` stands for `full_resume`."""
    path: Annotated[str | None, Location(absolute=True)] = None
    """Checkpoint directory or `model.pt` (absolute)."""
    weights: Weights | Listed[Weights] | None = None
    """Weights to load; a pair names the sources of live and running-average weights."""
    format: Literal["embedded_config_v1"] = "embedded_config_v1"
    """How a bare `model.pt` says what it is."""
    source_step: PositiveInt | None = None
    """Step the source must have reached."""
    source_contract: SourceContract | None = None
    """What the source must be."""
    resume_step: PositiveInt | None = None
    """Step a full resume must start at."""
    roles: RoleSources | None = None
    """Sources of the three Stage2 roles."""
    transaction_members: Listed[str] | None = None
    """Files of one Stage2 checkpoint."""


class WanInference(InferenceSection):
    """What `solarwm infer` generates."""

    source: Literal["validation"] = "validation"
    """Cases and passes come from the validation section."""
    length: Literal["fixed", "camera"] = "fixed"
    """Length of the passes, or of each source's camera track (Stage2 only)."""
    output_layout: Annotated[
        Literal["dataset_triplet_v1", "transaction_v1"], Derived(by=layout_of_length)
    ] = "transaction_v1"
    """How files are laid out."""
    run_id: Component | None = None
    """Name of a camera-length publication; null = the name of the run."""


class WanPreencode(PreencodeSection):
    """How clips are encoded into a latent data set."""

    schema_id: Annotated[Text, Format(by=latent_schema)] = Field(
        alias="schema", default="solarwm.wan22_ti2v_5b.480p.153f.v1"
    )
    """Latent format to write."""
    generation_id: Component
    """Name of this generation of latents."""
    output_root: Annotated[Text, Location(absolute=True)]
    """Directory to write (absolute)."""
    logical_output_root: Annotated[Text, Location(absolute=True)]
    """Address the index will be read from (absolute); neither root lies inside the other."""
    dtype: Annotated[
        Literal["bfloat16", "float32"],
        Recipe(by=derived.by_profile(released="bfloat16", other="float32")),
    ] = "bfloat16"
    """Number type of stored latents."""
    caption_source: Annotated[str, Format(value="frozen")] = "frozen"
    """Captions as they stand in the index."""
    camera_source: Annotated[str, Format(value="preserve")] = "preserve"
    """Cameras as they stand in the shard."""
    shard_max_samples: PositiveInt = 64
    """Most samples of one shard."""
    shard_max_bytes: PositiveInt = 2147483648
    """Largest shard in bytes."""


class WanDistributed(DistributedSection):
    """Ranks of a Wan run."""

    sample_sharding: Annotated[str, Format(value="logical_dp")] = "logical_dp"
    """Samples are shared among logical data-parallel ranks."""
    rng_scope: Annotated[str, Format(value="logical_dp")] = "logical_dp"
    """Ranks that share a sample share its randomness."""


class WanSplitDistributed(WanDistributed):
    """Ranks of the A14B family, whose samples are split by whole latent frames."""

    sequence_layout: Annotated[str, Format(value="whole_frame_uneven")] = "whole_frame_uneven"
    """Each rank of a group holds whole latent frames."""
    sp_frame_splits: Annotated[Listed[PositiveInt], Derived(by=derived.frame_splits)] = (21,)
    """Latent frames of each rank of a group; their sum is the latent frames of a clip."""
    sp_token_splits: Annotated[Listed[PositiveInt], Derived(by=derived.token_splits)] = (32760,)
    """Tokens of each rank of a group."""
