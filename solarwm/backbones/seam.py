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
from solarwm.nn.cache import ChunkCache, CleanContext
from solarwm.nn.chunks import ChunkWindow
from solarwm.nn.sequence import SequencePeers
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
    filled: tuple[str, ...] = ()
    """Tensors of the endpoint embedding copied from the time embedding of the same file."""
    dropped: tuple[str, ...] = ()
    """Tensors of the endpoint embedding in the file that this model does not have."""


class VideoDecoder(Protocol):
    """Decodes one clip's latents in the order they come."""

    def push(self, latents_FCHW: torch.Tensor) -> torch.Tensor:
        """uint8 frames [N,Y,X,3] of the next latents. No gradient."""
        ...


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

    def decoder(self) -> VideoDecoder:
        """A fresh decoder: the frames of a whole clip, piece by piece, equal those of
        `decode_video`; its memory does not grow with the clip."""
        ...

    def encode_text(self, prompts: Sequence[str]) -> torch.Tensor:
        """Prompts to states [B,T,D] fp32, rows past each prompt zero. No gradient."""
        ...


class Backbone(Protocol):
    """One family at one profile. Holds no weights: modules are passed in, so roles can share it.

    Layouts of `velocity`:

    - `bidirectional`: every frame sees every frame.
    - `teacher_forcing`: `latents` are the noisy half, `context` the clean half of equal length; a
      noisy chunk sees the clean chunks before it, by `window`.
    - `cached`: `latents` are one chunk, `cache` what was committed before it. No gradients.

    Conditions always cover exactly the frames of the latents they are given with; `frames` cuts
    them.
    """

    spec: BackboneSpec
    profile: Profile
    time: TimeCoordinate
    layouts: tuple[str, ...]
    """What `velocity` accepts as `layout`."""
    numerics: str
    """`published` or `corrected`: decides the positions and cameras of cached windows."""
    compile_flex: bool
    """Run chunk masks through compiled FlexAttention where the device has it; settable."""
    sequence: SequencePeers | None
    """Ranks that share every sample of a forward, or None; settable. All of them must then make the
    same calls with the same inputs, and all get the whole velocity. A backward leaves on each its
    part of the gradients, whose sum over the ranks is the gradient."""
    window: ChunkWindow
    """History rule of the causal layouts, from the `model` section."""

    def build(
        self, *, device: torch.device | str, seed: int, endpoint_gate: float | None = None
    ) -> nn.Module:
        """A transformer on `device` (`meta` allocates nothing), keyed by `seed`.

        `endpoint_gate` adds the embedding of a flow map's endpoint r with this share of the time
        embedding; it starts equal to the embedding of t, so that r = t gives the model without.
        """
        ...

    def load(
        self,
        module: nn.Module,
        path: Path,
        *,
        weights: str,
        endpoint: str = "exact",
        check: bool = False,
    ) -> CoverageReport:
        """Fill `module` from a published, diffusers or native file; `weights` is live or ema.

        `endpoint` says what may differ: `exact` nothing; `fill` the endpoint embedding may be
        missing from the file and is copied from the time embedding; `drop` it may be in the file of
        a model without one. `check` refuses what does not fit by name, shape or a value that is not
        finite, and changes nothing; the module may be on meta.
        """
        ...

    def conditions(self, batch: LatentBatch) -> Any:
        """Everything but latents and times that `velocity` needs, computed once per batch."""
        ...

    def with_text(self, conditions: Any, text_BTD: torch.Tensor) -> Any:
        """The same cameras under another prompt; a batch of one text serves every row."""
        ...

    def frames(self, conditions: Any, start: int, stop: int) -> Any:
        """The conditions of the latent frames start..stop-1."""
        ...

    def rows(self, conditions: Any, index_I: torch.Tensor) -> Any:
        """The conditions of the samples `index`, in that order; samples may repeat."""
        ...

    def clean_context(
        self,
        clean_BFCHW: torch.Tensor,
        *,
        sigma_BF: torch.Tensor | None = None,
        shared: bool = True,
    ) -> CleanContext:
        """The clean half of a teacher-forced sequence, at noise level 0 or `sigma`.

        The first forward that is given it runs clean and noisy half together (gradients reach the
        parameters through both). If `shared`, it keeps every layer's keys and values, detached, and
        later forwards run their noisy half alone against them; else every forward runs both halves
        and nothing is kept. What is kept is valid for one module with its present weights, one
        camera and one prompt.
        """
        ...

    def open_cache(self, latents_BFCHW: torch.Tensor) -> ChunkCache:
        """An empty cache for rollouts of this batch size, height, width and device.

        Frames of `latents` count only where the window keeps everything: then they are the most
        that can be committed.
        """
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
        context: CleanContext | None = None,
        cache: ChunkCache | None = None,
    ) -> torch.Tensor:
        """Canonical velocity (eps - x0), fp32 [B,F,C,H,W], at noise levels sigma in [0,1].

        `endpoint` is the noise level r <= sigma a flow map jumps to; left out, a flow map gives its
        instantaneous velocity (r = sigma). A module without endpoint embedding refuses it
        (`ValueError`).
        """
        ...

    def commit(
        self,
        module: nn.Module,
        clean_BFCHW: torch.Tensor,
        conditions: Any,
        cache: ChunkCache,
        *,
        sigma_BF: torch.Tensor | None = None,
    ) -> None:
        """Write finished frames into `cache` at noise level 0 (or `sigma`), one forward.

        One chunk in a rollout; several chunks into a cache just opened or cleared re-encode a
        history at once, each chunk seeing its window.
        """
        ...

    def codec(self, *, base_path: Path | None, assets: Any, device: torch.device) -> VideoCodec:
        """The family's VAE and text encoder, opened on first use."""
        ...
