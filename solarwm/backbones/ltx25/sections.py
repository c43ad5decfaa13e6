"""Sections of LTX-2.5 run configs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.config import derived
from solarwm.config.adapter_sections import (
    AdapterFsdp,
    AdapterSection,
    MasterOptimizer,
    SteppedValidation,
    compute_dtype,
)
from solarwm.config.marks import Architecture, Derived, Facts, Format, Location, Recipe
from solarwm.config.sections import (
    DataSection,
    DistributedSection,
    IndexKey,
    InferenceSection,
    ModelSection,
    PreencodeSection,
)
from solarwm.config.strict import (
    Count,
    Dtype,
    Fraction,
    Listed,
    NonNegative,
    Positive,
    PositiveInt,
    Section,
    Text,
    Weights,
    section,
)
from solarwm.config.training_sections import Strategy, TrainSection
from solarwm.objectives.rectified_flow_config import RectifiedFlowFields

_PROTOCOL = "solarwm.ltx25.online_codec.v1"


def artifact_version(facts: Facts) -> Any:
    """Name of the latent record; null where clips are encoded online."""
    if facts.get("data.input_mode") != "preencoded":
        return None
    return (
        "solarwm_ltx25_video_153f_h512_w768_v1" if facts.released else "solarwm.ltx25_video.tiny.v1"
    )


def reader_contract(facts: Facts) -> Any:
    """Name of the record layout; null where clips are encoded online."""
    return "ltx25.v1" if facts.get("data.input_mode") == "preencoded" else None


def online_protocol(facts: Facts) -> Any:
    """Name of the online codec; null where latents come from a data set."""
    return _PROTOCOL if facts.get("data.input_mode") == "raw_online" else None


def online_status(facts: Facts) -> Any:
    """`unpaired` where clips are encoded online; null otherwise."""
    return "unpaired" if facts.get("data.input_mode") == "raw_online" else None


def num_layers(facts: Facts) -> Any:
    """Blocks of the transformer."""
    return facts.dims.num_layers


def skipped_blocks(facts: Facts) -> Any:
    """The block whose attention is skipped for spatio-temporal guidance."""
    return [facts.profile.extras["skip_block"]]


class CodecSection(Section):
    """Files of the video autoencoder and the text encoder."""

    video_vae_path: Annotated[Text, Location(released_only=True)]
    """Weights of the video autoencoder with its diffusion decoder."""
    gemma4_path: Annotated[str | None, Location(released_only=True)] = None
    """Packed weights of the text encoder; needed wherever captions are encoded."""


class LtxAdapter(AdapterSection):
    """The low-rank adapter that is trained."""

    init_lora_weights: Annotated[bool, Format(value=True)] = True
    """Start with a zero update: Kaiming-uniform A, zero B."""


class LtxCodecModel(ModelSection):
    """What every action names."""

    family: Literal["ltx25_video"]
    """Backbone family."""
    profile: Literal["released", "tiny"] = "released"
    """`released`, or `tiny` for a CPU."""
    checkpoint_path: Annotated[str | None, Location(released_only=True)] = None
    """Weights of the base transformer; `tiny` needs none."""
    codec: CodecSection | None = None
    """Files of the codec; `tiny` needs none."""


class LtxModel(LtxCodecModel):
    """Stage0.5 of the video stream."""

    architecture: Annotated[str, Format(value="ltx-2.5-22b-dev-video-only")] = (
        "ltx-2.5-22b-dev-video-only"
    )
    """Name of the architecture."""
    latent_channels: Annotated[PositiveInt, Architecture(by=derived.latent_channels)] = 128
    """Channels of a latent."""
    latent_height: Annotated[PositiveInt, Architecture(by=derived.latent_height)] = 16
    """Rows of the latent grid."""
    latent_width: Annotated[PositiveInt, Architecture(by=derived.latent_width)] = 24
    """Columns of the latent grid."""
    training_mode: Annotated[str, Format(value="lora")] = "lora"
    """What is trained: an adapter on a frozen base."""
    torch_dtype: Annotated[Dtype, Recipe(by=compute_dtype)] = "bfloat16"
    """Number type of the base."""
    load_conditioners: Annotated[bool, Format(value=False)] = False
    """Load further condition models; not supported."""
    audio_enabled: Annotated[bool, Format(value=False, reason="only the video stream is built")] = (
        False
    )
    """Build the audio stream; not supported."""
    model_fps: Annotated[Positive, Architecture(value=24.0)] = 24.0
    """Frames a second in time positions and written videos; never changes which frames are read."""
    caption_cache_stage: Annotated[str, Format(value="gemma4_feature_extractor_preconnector")] = (
        "gemma4_feature_extractor_preconnector"
    )
    """Point of the text path at which caption states are stored."""
    attention_backend: Annotated[
        Literal["auto", "sdpa", "cudnn", "flash", "flex"],
        Recipe(by=derived.by_profile(released="cudnn", other="auto")),
    ] = "cudnn"
    """Attention kernel; `auto` takes the fastest the device has."""
    adapter: LtxAdapter = section()
    """The adapter."""
    adapter_checkpoint_path: Annotated[str | None, Location(actions=("infer",))] = None
    """Trained adapter to generate with."""
    adapter_weights: Weights = "ema"
    """Which of its weights."""
    adapter_checkpoint_format: Literal["transaction_v1", "inference_transaction_v1"] = (
        "transaction_v1"
    )
    """`transaction_v1` is a training checkpoint, `inference_transaction_v1` a released package."""


class LtxClips(DataSection):
    """Clip geometry of every action."""

    format: Annotated[str, Format(value="webdataset")] = "webdataset"
    """Container of shards."""
    index: IndexKey
    """Key of the index: training clips for `train`, held-out clips for `infer`, raw clips for
    `preencode`."""
    height: Annotated[PositiveInt, Architecture(by=derived.pixel_height, adjustable=True)] = 512
    """Pixel height of a clip."""
    width: Annotated[PositiveInt, Architecture(by=derived.pixel_width, adjustable=True)] = 768
    """Pixel width of a clip."""
    encoded_latents: Annotated[PositiveInt, Architecture(by=derived.latent_frames)] = 20
    """Latent frames of a clip: 1 + (pixel_frames - 1) / 8."""
    latent_channels: Annotated[PositiveInt, Architecture(by=derived.latent_channels)] = 128
    """Channels of a latent."""
    latent_height: Annotated[PositiveInt, Architecture(by=derived.latent_height)] = 16
    """Rows of the latent grid."""
    latent_width: Annotated[PositiveInt, Architecture(by=derived.latent_width)] = 24
    """Columns of the latent grid."""
    frame_sampling: Annotated[str, Format(value="contiguous")] = "contiguous"
    """Consecutive source frames."""
    source_fps_policy: Annotated[str, Format(value="provenance_only")] = "provenance_only"
    """The frame rate of a source is recorded and changes nothing."""
    random_start: Annotated[bool, Recipe(value=False)] = False
    """Cut each clip at a drawn frame instead of the start in the index."""

    @property
    def latent_frames(self) -> int:
        """Latent frames of a clip."""
        return self.encoded_latents


class LtxData(LtxClips):
    """Training and generation data."""

    input_mode: Literal["preencoded", "raw_online"] = "preencoded"
    """Latents encoded before, or raw clips encoded during the run."""
    generation: Text
    """Name of the generation of data, part of the checkpoint contract."""
    test_index: IndexKey | None = None
    """Key of the held-out index; needed for training."""
    completion_marker: str | None = None
    """File that marks a complete latent data set; preencoded data only."""
    reader_contract: Annotated[str | None, Format(by=reader_contract)] = None
    """Layout of a record; preencoded data only."""
    artifact_version: Annotated[str | None, Format(by=artifact_version)] = None
    """Version of a record; preencoded data only."""
    online_codec_protocol: Annotated[str | None, Format(by=online_protocol)] = None
    """Codec that encodes raw clips; online data only."""
    behavior_status: Annotated[str | None, Format(by=online_status)] = None
    """`unpaired`: online latents are not claimed equal to published ones bit for bit; online data
    only."""
    max_rel_translation: Annotated[Positive | None, Recipe(value=20.0)] = 20.0
    """Largest translation relative to the first frame, in world units; null = no limit."""
    max_camera_abs: Annotated[Positive | None, Recipe(value=20.0)] = 20.0
    """Largest absolute entry of a pose, in world units; null = no limit."""

    @property
    def train_index(self) -> str:
        """Key of the training index."""
        return self.index

    @property
    def encoding(self) -> str:
        """`preencoded` or `online`, as Wan configs say it."""
        return "preencoded" if self.input_mode == "preencoded" else "online"


class LtxPreencodeData(LtxClips):
    """Raw clips to encode."""

    input_mode: Literal["raw"] = "raw"
    """Raw clips."""
    partition_mode: Annotated[
        Literal["global_occurrence"],
        Format(value="global_occurrence", reason="each row is encoded once"),
    ] = "global_occurrence"
    """How rows are shared among ranks."""


class LtxDistributed(DistributedSection):
    """Ranks of an LTX run."""

    local_world_size: PositiveInt | None = None
    """Ranks of one node; null = what the launcher starts."""
    rank_partition: Literal["node_shard", "global_occurrence"] = "node_shard"
    """How occurrences are shared among ranks in the published order."""


class LtxFsdp(AdapterFsdp):
    """Sharding of the frozen base; adapters are replicated."""

    sharding_strategy: Annotated[
        Strategy, Recipe(by=derived.by_profile(released="HYBRID_SHARD", other="none"))
    ] = "HYBRID_SHARD"
    """How the base is spread: replicated, sharded everywhere, or sharded inside a node."""
    activation_checkpointed_blocks: Annotated[Count, Derived(by=num_layers)] = 48
    """Blocks that recompute their activations."""
    ignore_fp32_scale_tables: Annotated[bool, Recipe(value=True)] = True
    """Leave the fp32 modulation tables unsharded."""


class LtxTrain(TrainSection, RectifiedFlowFields):
    """Rectified flow on the video stream."""

    stage: Literal["stage0p5"] = "stage0p5"
    """Training stage."""
    causal_mode: Literal["bidirectional"] = "bidirectional"
    """Every latent frame sees every other."""
    objective: Literal["native_rectified_flow"] = "native_rectified_flow"
    """Training rule."""
    grad_accum: Annotated[PositiveInt, Recipe(value=2)] = 1
    """Micro batches added up before one optimizer step."""
    precision: Annotated[Dtype, Recipe(by=compute_dtype)] = "bfloat16"
    """Number type of the forward pass."""
    optimizer: MasterOptimizer = section()
    """Optimizer of the adapter."""
    fsdp: LtxFsdp = section()
    """Sharding and recomputation."""


class GuidanceSection(Section):
    """How the conditional velocity is pushed away from weaker ones."""

    cfg_scale: Annotated[NonNegative, Recipe(value=3.0)] = 3.0
    """Push away from the negative caption: c + (scale - 1)(c - u). 1 = none."""
    stg_scale: Annotated[NonNegative, Recipe(value=1.0)] = 1.0
    """Push away from the model with skipped attention. 0 = none."""
    rescale_scale: Annotated[Fraction, Recipe(value=0.7)] = 0.7
    """Share of the guided estimate brought back to the spread of the plain one. 0 = none."""
    stg_blocks: Annotated[Listed[Count], Derived(by=skipped_blocks)] = (28,)
    """Blocks whose attention is skipped."""


class SamplerFields(Section):
    """How clips are generated."""

    negative_caption_cache: Annotated[str | None, Location(released_only=True)] = None
    """Encoded negative caption; `tiny` encodes an empty one."""
    num_inference_steps: Annotated[PositiveInt, Recipe(value=30)] = 30
    """Denoising steps; each is three model evaluations with full guidance."""
    seed: Annotated[Count, Recipe(value=10)] = 10
    """Seed of the start noise; the slot is added to it."""
    fps: Annotated[Positive, Recipe(value=24.0)] = 24.0
    """Frames a second of written videos."""
    decoder_mode: Annotated[str, Format(value="diffvae_chunked_eager")] = "diffvae_chunked_eager"
    """How latents are decoded."""
    guidance: GuidanceSection = section()
    """Guidance."""


class LtxValidation(SteppedValidation):
    """Which held-out clips are generated, and how."""

    inference: SamplerFields = section()
    """How they are generated."""

    @property
    def noise_seed(self) -> int:
        """Seed of the start noise."""
        return self.inference.seed


class LtxInference(SamplerFields, InferenceSection):
    """What `solarwm infer` generates."""

    sample_count: Count = 0
    """Clips. 0 = none."""
    selection_seed: Annotated[Count, Recipe(value=42)] = 42
    """Seed that selects the clips."""


class LtxPreencode(PreencodeSection):
    """How clips are encoded into a latent data set."""

    codec_protocol: Annotated[str, Format(value=_PROTOCOL)] = _PROTOCOL
    """Codec."""
    behavior_status: Annotated[str, Format(value="unpaired")] = "unpaired"
    """Latents are not claimed equal to published ones bit for bit."""
    vae_encode_mode: Annotated[str, Format(value="direct")] = "direct"
    """Whole clips at once, without tiles."""
    automatic_oom_fallback: Annotated[
        bool, Format(value=False, reason="tiles would change the latents")
    ] = False
    """Fall back to tiles when memory runs out; not supported."""
    output_root: Annotated[Text, Location()]
    """Directory to write."""
    samples_per_shard: PositiveInt = 32
    """Samples of one shard."""
    index_relative_path: Text = "indexes/preencoded.rank-{rank}.jsonl"
    """Index of each rank below its output, with exactly one `{rank}`."""
