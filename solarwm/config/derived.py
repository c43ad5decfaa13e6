"""Values that follow from the profile and from other fields; used as `by=` of marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solarwm.config.marks import UNKNOWN, Facts


def by_profile(*, released: Any, other: Any) -> Callable[[Facts], Any]:
    """One value for the published size, another for the small profiles."""

    def value(facts: Facts) -> Any:
        return released if facts.released else other

    return value


def extra(name: str) -> Callable[[Facts], Any]:
    """A size that only this family has, from the profile."""

    def value(facts: Facts) -> Any:
        return facts.profile.extras.get(name, UNKNOWN)

    return value


def latent_channels(facts: Facts) -> Any:
    """Channels of a latent."""
    return facts.geometry.channels


def latent_frames(facts: Facts) -> Any:
    """Latent frames of a clip of `data.pixel_frames` frames."""
    latents = facts.latents
    return UNKNOWN if latents is None else latents


def latent_height(facts: Facts) -> Any:
    """Rows of the latent grid."""
    return facts.latent_height


def latent_width(facts: Facts) -> Any:
    """Columns of the latent grid."""
    return facts.latent_width


def tokens_per_latent(facts: Facts) -> Any:
    """Transformer tokens of one latent frame."""
    return facts.tokens_per_latent


def chunk_latents(facts: Facts) -> Any:
    """Latent frames of one causal chunk."""
    return facts.spec.chunk_latents


def pixel_height(facts: Facts) -> Any:
    """Default pixel height of the profile."""
    return facts.profile.default_height


def pixel_width(facts: Facts) -> Any:
    """Default pixel width of the profile."""
    return facts.profile.default_width


def pixel_frames(facts: Facts) -> Any:
    """Default pixel frames of the profile."""
    return facts.profile.default_frames


def latent_shape(facts: Facts) -> Any:
    """[latent frames, channels, rows, columns]."""
    if facts.latents is None:
        return UNKNOWN
    return [facts.latents, facts.geometry.channels, facts.latent_height, facts.latent_width]


def prompt_shape(facts: Facts) -> Any:
    """[text tokens, text channels]."""
    return [facts.dims.text_len, facts.dims.text_dim]


def data_guard(field: str) -> Callable[[Facts], Any]:
    """The camera guard of the data section; validation uses it unless it has its own."""

    def value(facts: Facts) -> Any:
        return facts.get(f"data.{field}", 20.0)

    return value


def global_batch(facts: Facts) -> Any:
    """Logical data-parallel ranks times micro batch times accumulation."""
    ranks = facts.integer("distributed.world_size", 1)
    parallel = facts.integer("distributed.sequence_parallel_size", sequence_parallel(facts))
    micro = facts.integer("train.micro_batch_size", 1)
    accumulation = facts.integer("train.grad_accum", 1)
    return max(1, ranks // max(1, parallel)) * micro * accumulation


_SEQUENCE_PARALLEL = {
    ("wan22_i2v_a14b", "stage0p5"): 2,
    ("ltx25_video", "stage0p5"): 2,
    ("minimax_h3", "stage0p5"): 2,
    ("minimax_h3", "stage1"): 2,
    ("minimax_h3", "stage2"): 4,
}


def sequence_parallel(facts: Facts) -> int:
    """Ranks that share one sample in the published recipe; 1 in the small profiles."""
    if facts.released and facts.get("inference.length_policy") == "source":
        return 8
    return _SEQUENCE_PARALLEL.get((facts.spec.family, facts.stage), 1) if facts.released else 1


def frame_splits(facts: Facts) -> Any:
    """Latent frames of each sequence-parallel rank: as even as whole frames allow, larger parts
    first."""
    parts = facts.integer("distributed.sequence_parallel_size", sequence_parallel(facts))
    if facts.latents is None or parts < 1:
        return UNKNOWN
    share, rest = divmod(facts.latents, parts)
    return [share + (index < rest) for index in range(parts)]


def token_splits(facts: Facts) -> Any:
    """Tokens of each sequence-parallel rank."""
    splits = facts.get("distributed.sp_frame_splits", frame_splits(facts))
    try:
        return [int(part) * facts.tokens_per_latent for part in splits]
    except (TypeError, ValueError):
        return UNKNOWN
