"""The `data` section of the Wan families."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from solarwm.config import derived
from solarwm.config.marks import UNKNOWN, Architecture, Derived, Facts, Format, Recipe
from solarwm.config.sections import DataSection, IndexKey
from solarwm.config.strict import Dtype, Listed, Positive, PositiveInt

SCHEMAS: dict[str, dict[tuple[int, int], str]] = {
    "wan22_ti2v_5b": {
        (480, 81): "solarwm.wan22_ti2v_5b.480p.81f.v1",
        (480, 153): "solarwm.wan22_ti2v_5b.480p.153f.v1",
        (704, 153): "solarwm.wan22_ti2v_5b.720p.153f.v1",
    },
    "wan22_i2v_a14b": {(480, 153): "solarwm.wan22_i2v_a14b.480p.153f.v1"},
}
"""Published latent formats by family, pixel height and pixel frames."""


def written_schema(facts: Facts) -> str:
    """The latent format the config names, empty where it names none."""
    return str(facts.get("data.preencode_schema") or facts.get("preencode.schema") or "")


def latent_schema(facts: Facts) -> Any:
    """Name of the latent format that fits family, size and frames."""
    if not facts.released:
        return f"solarwm.{facts.spec.family}.{facts.profile.name}.v1"
    known = SCHEMAS.get(facts.spec.family, {})
    written = written_schema(facts)
    if written in {name for (_, frames), name in known.items() if frames == facts.pixel_frames}:
        return written
    return known.get((facts.height, facts.pixel_frames), UNKNOWN)


def data_schema(facts: Facts) -> Any:
    """The latent format of preencoded data; null for online encoding."""
    return latent_schema(facts) if facts.get("data.encoding") == "preencoded" else None


def window_assignment(facts: Facts) -> Any:
    """Published rule of preencoded data; null for online encoding."""
    return "materialized_index_v1" if facts.get("data.encoding") == "preencoded" else None


def pixel_height(facts: Facts) -> Any:
    """480, or 704 where the 720p latent format is named; the default of the profile otherwise."""
    tall = facts.released and ".720p." in written_schema(facts)
    return 704 if tall else facts.profile.default_height


def pixel_width(facts: Facts) -> Any:
    """Width that goes with the height."""
    tall = facts.released and ".720p." in written_schema(facts)
    return 1280 if tall else facts.profile.default_width


def drawn_start(facts: Facts) -> Any:
    """True where clips are cut online from longer videos: 81 frames, or any frames of a small
    profile."""
    camera_length = facts.get("inference.length") == "camera"
    online = facts.get("data.encoding", "online") == "online"
    return online and not camera_length and (not facts.released or facts.pixel_frames == 81)


def image_condition_shape(facts: Facts) -> Any:
    """[latent frames, mask and image channels, rows, columns]."""
    latents = derived.latent_shape(facts)
    return UNKNOWN if latents is UNKNOWN else [latents[0], latents[1] + 4, *latents[2:]]


class WanClips(DataSection):
    """Clip geometry and cameras, for every Wan action."""

    height: Annotated[PositiveInt, Architecture(by=pixel_height, adjustable=True)] = 480
    """Pixel height of a clip."""
    width: Annotated[PositiveInt, Architecture(by=pixel_width, adjustable=True)] = 864
    """Pixel width of a clip."""
    fps: Annotated[Positive, Recipe(value=16.0)] = 16.0
    """Frames a second that sources are resampled to."""
    camera_array_key: Annotated[str, Format(value="c2w")] = "c2w"
    """Array of the camera member that holds the poses."""
    max_rel_translation: Annotated[Positive | None, Recipe(value=20.0)] = 20.0
    """Largest translation relative to the first frame, in world units; null = no limit."""
    max_camera_abs: Annotated[Positive | None, Recipe(value=20.0)] = 20.0
    """Largest absolute entry of a pose, in world units; null = no limit."""


class WanData(WanClips):
    """Training and generation data."""

    encoding: Literal["online", "preencoded"] = "online"
    """Raw clips encoded during the run, or latents encoded before."""
    preencode_schema: Annotated[str | None, Format(by=data_schema)] = None
    """Latent format of preencoded data; fixes all shapes."""
    preencode_window_assignment: Annotated[
        Literal["deterministic_hash_v1", "materialized_index_v1"] | None,
        Derived(by=window_assignment),
    ] = None
    """How windows of long sources were chosen; preencoded data only."""
    latent_dtype: Annotated[
        Dtype, Recipe(by=derived.by_profile(released="bfloat16", other="float32"))
    ] = "bfloat16"
    """Number type of latents."""
    latent_shape: Annotated[Listed[PositiveInt], Architecture(by=derived.latent_shape)] = (
        21,
        48,
        30,
        54,
    )
    """[latent frames, channels, rows, columns]."""
    prompt_shape: Annotated[Listed[PositiveInt], Architecture(by=derived.prompt_shape)] = (
        512,
        4096,
    )
    """[text tokens, text channels]."""
    caption_source: Annotated[str, Format(value="frozen")] = "frozen"
    """Captions as they stand in the index."""
    camera_source: Annotated[str, Format(value="preserve")] = "preserve"
    """Cameras as they stand in the shard."""
    train_index: IndexKey
    """Key of the training index."""
    test_index: IndexKey
    """Key of the held-out index."""
    latent_frames: Annotated[PositiveInt, Architecture(by=derived.latent_frames)] = 21
    """Latent frames of a clip: 1 + (pixel_frames - 1) / 4."""
    random_start: Annotated[bool, Derived(by=drawn_start)] = True
    """Cut each clip at a drawn frame of its source instead of the start in the index."""


class WanImageData(WanData):
    """Data of the image-to-video family, whose condition has its own channels."""

    i2v_y_shape: Annotated[Listed[PositiveInt], Architecture(by=image_condition_shape)] = (
        21,
        20,
        60,
        104,
    )
    """[latent frames, mask and image channels, rows, columns]."""


class WanPreencodeData(WanClips):
    """Raw clips to encode."""

    index: IndexKey
    """Key of the index of windows to encode."""
