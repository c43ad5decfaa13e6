"""Sections that every family has, and the run config that joins them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from solarwm.config import derived
from solarwm.config.aliases import ALIASES
from solarwm.config.marks import Architecture, Derived, Format, Location, Recipe
from solarwm.config.runtime_section import RuntimeSection
from solarwm.config.strict import (
    Count,
    PassName,
    Positive,
    PositiveInt,
    RelativeKey,
    Section,
    Text,
    section,
)
from solarwm.config.training_sections import AverageSection, TrainSection

__all__ = [
    "ALIASES",
    "CheckpointSection",
    "DataSection",
    "DistributedSection",
    "InferenceSection",
    "ModelSection",
    "PassSection",
    "PreencodeRun",
    "PreencodeSection",
    "RunBase",
    "RunConfig",
    "TransportSection",
    "ValidationSection",
]

Stage = Literal["stage0p5", "stage1", "stage2"]
_PARALLEL_MODE = "the legacy `parallel` camera mode is not supported: only fused PRoPE attention is"


class ModelSection(Section):
    """Which backbone, at which size, with which camera conventions."""

    family: str
    """Backbone family."""
    stage: Stage | None = None
    """Fallback for `train.stage`."""
    profile: str = "released"
    """Size of the model: `released`, or a small one that runs on a CPU."""
    numerics: Literal["auto", "published", "corrected"] = "auto"
    """Rounding, keys of randomness and window slots: as published, or corrected. `auto` follows the
    checkpoint, else corrected."""
    camera_attention_mode: Annotated[str, Format(value="fused_prope", reason=_PARALLEL_MODE)] = (
        "fused_prope"
    )
    """How cameras enter attention."""
    camera_translation_transform: Literal["linear", "logd4"] = "linear"
    """What is done to relative translations before they enter attention."""
    camera_intrinsics_mode: Annotated[Literal["wan_fixed", "source"], Recipe(value="wan_fixed")] = (
        "wan_fixed"
    )
    """Lens used in attention: the fixed published one, or that of each clip."""
    latent_channels: Annotated[PositiveInt, Architecture(by=derived.latent_channels)] = 48
    """Channels of a latent."""


class TransportSection(Section):
    """Where shards are read from."""

    kind: Literal["local", "gcs", "s3", "http", "hf"] = "local"
    """`local` directory, or the store: `gcs`, `s3`, `http` or `hf`."""
    root: Annotated[Text, Location(absolute=True)]
    """Directory (absolute), or `gs://`, `s3://`, `http(s)://` or `hf://` address that shard keys start
    from."""
    cache_dir: Annotated[str | None, Location(absolute=True)] = None
    """Local cache of a store; required for a store, not allowed for `local`."""
    cache_max_gib: Positive | None = None
    """Largest size of that cache in GiB."""


class DataSection(Section):
    """Clips, captions and cameras: where they are and how they are cut."""

    order: Literal["published", "indexed"] = "published"
    """`published` follows the published plan; `indexed` is a keyed permutation that depends on no
    worker or rank count."""
    transport: TransportSection
    """Where shards are read from."""
    index_root: Annotated[str | None, Location(absolute=True)] = None
    """Directory (absolute) that index keys start from; null = the local transport root."""
    pixel_frames: Annotated[PositiveInt, Derived(by=derived.pixel_frames)] = 81
    """Pixel frames of a clip; the route lists the published counts, small profiles take any the VAE
    allows."""
    height: Annotated[PositiveInt, Architecture(by=derived.pixel_height, adjustable=True)] = 480
    """Pixel height of a clip."""
    width: Annotated[PositiveInt, Architecture(by=derived.pixel_width, adjustable=True)] = 864
    """Pixel width of a clip."""
    seed: Annotated[Count, Recipe(value=42)] = 42
    """Seed of every keyed draw of the run."""
    num_workers: Count = 1
    """Reader workers of one rank. 0 = read in the training process."""
    prefetch_factor: PositiveInt = 2
    """Batches each worker keeps ready."""
    shuffle_buffer: PositiveInt = 64
    """Window of the published order's shuffle, in occurrences; `indexed` order needs none."""
    gcs_prefetch_shards: Count = 0
    """Shards of the order fetched ahead of the readers from a store. 0 = off."""
    tar_cache_size: PositiveInt = 4
    """Shard files kept open by a reader."""
    on_bad_sample: Literal["stop", "skip"] = "stop"
    """A sample that cannot be read (missing, cut, undecodable, not answered for): `stop` the run, or
    `skip` to its substitute."""
    max_bad_samples: Count = 100
    """Different samples that `skip` may pass over in one start, all ranks together."""
    streaming_index: Annotated[bool, Recipe(value=True)] = True
    """Read the index line by line instead of holding it."""
    partition_mode: Literal["node_shard", "global_occurrence"] = "node_shard"
    """How occurrences are shared among ranks in the published order."""
    latent_cache_dir: Annotated[str | None, Location()] = None
    """Cache of clips encoded during training; null = inside the run directory."""


class DistributedSection(Section):
    """How many ranks, and how many of them share one sample."""

    world_size: PositiveInt = 1
    """Ranks of the run; must equal what the launcher starts."""
    sequence_parallel_size: Annotated[PositiveInt, Recipe(by=derived.sequence_parallel)] = 1
    """Ranks that share one sample."""
    timeout_s: Positive = 600.0
    """Seconds a collective may wait for another rank."""
    check_peers_every: Count = 1
    """Steps between comparisons of what ranks that share a sample work on. 0 = never."""
    check_collectives: bool = False
    """Compare every collective with the other ranks before it is made: slow, for finding hangs."""


class PassSection(Section):
    """One way of generating every validation case."""

    name: PassName
    """Name of the pass; also a directory name, unique within the list."""
    weights: Literal["live", "ema", "model"] = "live"
    """Weights that generate; `model` = the role named by the release (camera-length inference)."""
    camera: Literal["source", "inverse", "mirror", "frozen", "other"] = "source"
    """Camera driven: the clip's own, its inverse, its mirror, one that never moves, or another
    clip's."""


class ValidationSection(Section):
    """Which held-out clips are generated, and how."""

    sample_count: Count = 0
    """Held-out clips. 0 = off."""
    selection_seed: Annotated[Count, Recipe(value=42)] = 42
    """Seed that selects the clips."""

    @property
    def named_passes(self) -> tuple[PassSection, ...]:
        """The passes, each as a section, whatever way the family writes them."""
        return self.passes


class CheckpointSection(Section):
    """What is kept on disk."""

    keep_last: Count = 0
    """Newest checkpoints kept. 0 = keep all."""
    keep_every: Count = 0
    """Steps whose multiples are kept for good. 0 = none."""
    copy_to: str | None = None
    """Address of an object store (`s3://bucket/run`) that complete checkpoints are copied to beside
    training, under the same retention; null = none."""
    async_save: Literal["auto", "always", "never"] = "auto"
    """Write checkpoints beside training: the step waits for a copy only. auto = on accelerators."""
    when_busy: Literal["wait", "skip"] = "wait"
    """What a save does while an earlier one is still being written."""


class InferenceSection(Section):
    """What `solarwm infer` generates."""


class PreencodeSection(Section):
    """How clips are encoded into a latent data set."""


class RunBase(Section):
    """What every run says of itself, as `solarwm.run.v1`."""

    schema_id: Literal["solarwm.run.v1"] = Field(alias="schema")
    """Format of the file."""
    name: Text
    """Name of the run."""
    model: ModelSection
    """Backbone."""
    data: DataSection
    """Clips."""
    distributed: DistributedSection = section()
    """Ranks."""
    runtime: RuntimeSection
    """Output directory, device, cadence."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Free notes, copied into the launch manifest."""


class RunConfig(RunBase):
    """A run of a training route: training, or generation with what it trained."""

    action: Literal["train", "infer"]
    """Command the file is written for."""
    train: TrainSection
    """Training rule, batch, optimizer; the batch is provenance for `infer`."""
    validation: ValidationSection = section()
    """Held-out generation."""
    checkpoint: CheckpointSection = section()
    """Start weights, resume, retention."""
    inference: InferenceSection = section()
    """Generation with `solarwm infer`."""

    @property
    def save_every(self) -> int:
        """Optimizer steps between checkpoints, 0 = off; each family keeps it in its published
        section."""
        return self.runtime.save_every

    @property
    def validate_every(self) -> int:
        """Optimizer steps between validations, 0 = off."""
        return self.runtime.validate_every

    @property
    def ema(self) -> AverageSection:
        """The running average of the student."""
        return self.train.ema

    @property
    def warmup_steps(self) -> int:
        """Steps of linear learning-rate warm-up."""
        return self.train.warmup_steps


class PreencodeRun(RunBase):
    """A run that encodes raw clips into a latent data set; it trains nothing."""

    action: Literal["preencode"]
    """Command the file is written for."""
    preencode: PreencodeSection
    """How and where to."""


IndexKey = Annotated[RelativeKey, Location()]
"""Key of an index file below `index_root`."""
