"""The `data` and `distributed` sections of MiniMax-H3."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.backbones.minimax_h3.model_section import target_latents
from solarwm.config import derived
from solarwm.config.marks import Architecture, Facts, Format, Location, Recipe
from solarwm.config.sections import DataSection, DistributedSection, IndexKey
from solarwm.config.strict import Positive, PositiveInt


def record_format(facts: Facts) -> Any:
    """Name of the latent record."""
    return "h3.158f.v1" if facts.released else "solarwm.minimax_h3.tiny.v1"


class H3Clips(DataSection):
    """Clip geometry of every action."""

    format: Annotated[str, Format(value="webdataset")] = "webdataset"
    """Container of shards."""
    dataset_name: Annotated[str, Format(value="h3_preencoded_wds")] = "h3_preencoded_wds"
    """Name of the record layout."""
    preencode_version: Annotated[str, Format(by=record_format)] = "h3.158f.v1"
    """Version of a record."""
    silence_latents_path: Annotated[str | None, Location(released_only=True)] = None
    """Encoded silence that stands in for sound; `tiny` encodes its own."""
    encoder_contract_path: Annotated[str | None, Location(released_only=True)] = None
    """What encoded the records."""
    pixel_frames: Annotated[PositiveInt, Architecture(by=derived.pixel_frames, adjustable=True)] = (
        158
    )
    """Pixel frames of a clip: 17 n + 5."""
    height: Annotated[PositiveInt, Architecture(by=derived.pixel_height, adjustable=True)] = 768
    """Pixel height of a clip."""
    width: Annotated[PositiveInt, Architecture(by=derived.pixel_width, adjustable=True)] = 1344
    """Pixel width of a clip."""
    encoded_latents: Annotated[PositiveInt, Architecture(by=derived.latent_frames)] = 47
    """Latent frames of a clip: 5 n + 2."""
    train_target_latents: Annotated[PositiveInt, Architecture(by=target_latents)] = 47
    """Latent frames that training supervises."""
    latent_channels: Annotated[PositiveInt, Architecture(by=derived.latent_channels)] = 24
    """Channels of a latent."""
    latent_height: Annotated[PositiveInt, Architecture(by=derived.latent_height)] = 48
    """Rows of the latent grid."""
    latent_width: Annotated[PositiveInt, Architecture(by=derived.latent_width)] = 84
    """Columns of the latent grid."""
    frame_sampling: Annotated[str, Format(value="contiguous")] = "contiguous"
    """Consecutive source frames."""
    source_fps_policy: Annotated[str, Format(value="audit_only")] = "audit_only"
    """The frame rate of a source bounds the camera audit and changes no frames."""
    resolution_label: Annotated[str, Format(value="default")] = "default"
    """Name of the resolution."""
    random_start: Annotated[bool, Recipe(value=False)] = False
    """Cut each clip at a drawn frame instead of the start in the index."""
    max_rel_translation: Annotated[Positive | None, Recipe(value=20.0)] = 20.0
    """Largest translation relative to the first frame, in world units; null = no limit."""
    max_camera_abs: Annotated[Positive | None, Recipe(value=20.0)] = 20.0
    """Largest absolute entry of a pose, in world units; null = no limit."""
    shuffle_buffer: PositiveInt = 4096
    """Window of the published order's shuffle, in occurrences; `indexed` order needs none."""

    @property
    def latent_frames(self) -> int:
        """Latent frames of a clip."""
        return self.encoded_latents


class H3Data(H3Clips):
    """Training and generation data."""

    input_mode: Literal["preencoded"] = "preencoded"
    """Latents encoded before."""
    train_index: IndexKey
    """Key of the training index."""
    test_index: IndexKey
    """Key of the held-out index."""

    @property
    def encoding(self) -> str:
        """`preencoded`, as Wan configs say it."""
        return "preencoded"


class H3Stage1Data(H3Data):
    """Training and generation data of Stage1."""

    raw_test_index: IndexKey | None = None
    """Key of the raw held-out index, whose camera tracks reach further than the encoded clips."""


class H3PreencodeData(H3Clips):
    """Raw clips to encode."""

    input_mode: Literal["raw"] = "raw"
    """Raw clips."""
    index: IndexKey
    """Key of the index of clips to encode."""
    fixed_start_from_index: Annotated[bool, Format(value=True)] = True
    """Every clip starts at the frame in the index."""


class H3Distributed(DistributedSection):
    """Ranks of an H3 run."""

    context_parallel_size: Annotated[int, Format(value=1)] = 1
    """Ranks of context parallelism; sequence parallelism is used instead."""
    rank_partition: Literal["node_shard", "global_occurrence"] = "node_shard"
    """How occurrences are shared among ranks in the published order."""
    sp_peers_share_sample: Annotated[bool, Format(value=True)] = True
    """Ranks of a group work on one sample."""
    sp_peers_share_rng: Annotated[bool, Format(value=True)] = True
    """Ranks of a group share its randomness."""
