"""The seam every backbone fills: all that stages, validation and inference may ask of it.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, T text tokens, D
text width, N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from solarwm.data.tensors import LatentBatch
from solarwm.nn.time import TimeCoordinate
from solarwm.routes.spec import BackboneSpec, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageReport:
    """Which tensors a weight file filled; built by the key adapters, stored in manifests."""

    source: str
    naming: str
    """`published`, `diffusers` or `native`."""
    loaded: int
    expected: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    stripped_prefix: str = ""


class VideoCodec(Protocol):
    """Pixels and text to latents and back. Deterministic: equal input gives equal bits."""

    digest: str
    """Names weights and maths; part of every latent cache key."""

    def encode_video(self, pixels_NYX3: torch.Tensor) -> torch.Tensor:
        """uint8 frames [N,Y,X,3] to normalised latents [F,C,H,W] fp32. No gradient."""
        ...

    def decode_video(self, latents_FCHW: torch.Tensor) -> torch.Tensor:
        """Normalised latents [F,C,H,W] to uint8 frames [N,Y,X,3]. No gradient."""
        ...

    def encode_text(self, prompts: Sequence[str]) -> torch.Tensor:
        """Prompts to states [B,T,D] fp32, rows past each prompt zero. No gradient."""
        ...


class Backbone(Protocol):
    """One family at one profile. Holds no weights: modules are passed in, so roles can share it."""

    spec: BackboneSpec
    profile: Profile
    time: TimeCoordinate
    layouts: tuple[str, ...]
    """What `velocity` accepts as `layout`; a route runs when its causal mode is among them."""

    def build(self, *, device: torch.device | str, seed: int) -> nn.Module:
        """A transformer on `device` (`meta` allocates nothing), keyed by `seed`."""
        ...

    def load(self, module: nn.Module, path: Path, *, weights: str) -> CoverageReport:
        """Fill `module` from a published, diffusers or native file; `weights` is live or ema."""
        ...

    def conditions(self, batch: LatentBatch) -> Any:
        """Everything but latents and times that `velocity` needs, computed once per batch."""
        ...

    def velocity(
        self,
        module: nn.Module,
        latents_BFCHW: torch.Tensor,
        sigma_BF: torch.Tensor,
        conditions: Any,
        *,
        layout: str = "bidirectional",
        endpoint_BF: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Canonical velocity (eps - x0), fp32 [B,F,C,H,W], at noise levels sigma in [0,1]."""
        ...

    def codec(self, *, base_path: Path | None, assets: Any, device: torch.device) -> VideoCodec:
        """The family's VAE and text encoder, opened on first use."""
        ...
