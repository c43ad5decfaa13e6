"""Plain values that describe a backbone and a route. Standard library only: the config desk loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDims:
    """Size of one diffusion transformer; the same code builds every size."""

    dim: int
    num_layers: int
    num_heads: int
    ffn_dim: int
    in_channels: int
    out_channels: int
    patch: tuple[int, int, int]
    text_dim: int
    text_len: int
    freq_dim: int
    attention_dim: int | None = None
    """Width of all heads together where it differs from `dim`."""

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return (self.attention_dim or self.dim) // self.num_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentGeometry:
    """How pixels become latents: frames = first + period * n, `latents_per_period` latents each period."""

    channels: int
    spatial_stride: int
    first_frames: int
    first_latents: int
    period_frames: int
    period_latents: int
    size_multiple: int

    def latents(self, frames: int) -> int | None:
        """Latent frames of a clip of `frames` pixel frames, or None where the VAE rule forbids the count."""
        periods, rest = divmod(frames - self.first_frames, self.period_frames)
        if rest or periods < 0:
            return None
        return self.first_latents + periods * self.period_latents

    def nearest_frames(self, frames: int) -> tuple[int, ...]:
        """The legal frame counts next to an illegal one, ascending."""
        periods = max(0, (frames - self.first_frames) // self.period_frames)
        return tuple(self.first_frames + self.period_frames * n for n in (periods, periods + 1))

    def frames(self, latents: int) -> int | None:
        """Pixel frames of `latents` latent frames, or None where no clip has that many."""
        periods, rest = divmod(latents - self.first_latents, self.period_latents)
        if rest or periods < 0:
            return None
        return self.first_frames + periods * self.period_frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One size of a backbone: `released`, or a small one that runs the same routes on a CPU."""

    name: str
    dims: ModelDims
    geometry: LatentGeometry
    default_height: int
    default_width: int
    default_frames: int
    extras: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes only this family has, by name (`adapter_rank`, `refiner_layers`, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneSpec:
    """What the rest of the house must know of a backbone without importing it."""

    family: str
    title: str
    aliases: tuple[str, ...]
    heavy: str
    """Import string `module:factory` of the heavy half (torch)."""
    time_convention: str
    """`sigma` (x = (1-s) x0 + s eps) or `reverse` (x = t x0 + (1-t) eps)."""
    training_shift: float | None
    chunk_latents: int
    camera_transforms: tuple[str, ...]
    first_frame_anchored: bool
    """The first latent frame is the image condition: clean, at time 0, outside the loss."""
    block_class: str
    lora_targets: tuple[str, ...]
    fp32_parameters: tuple[str, ...]
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the route table: a combination that runs."""

    family: str
    stage: str
    causal_mode: str
    objective: str
    variant: str | None
    frames: tuple[int, ...]
    """Pixel frames of the released profile."""
    roles: tuple[str, ...]
    backbone_spec: str
    """Import string `module:SPEC`."""
    config_model: str
    """Import string `module:Model` of the pydantic run config (light half)."""
    objective_factory: str
    """Import string `module:factory` of the objective (torch)."""

    @property
    def key(self) -> str:
        """The published key `family:stage:causal_mode:objective[:variant]`."""
        parts = [self.family, self.stage, self.causal_mode, self.objective]
        return ":".join([*parts, self.variant] if self.variant else parts)
