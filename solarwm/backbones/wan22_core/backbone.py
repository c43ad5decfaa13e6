"""What both Wan 2.2 families do at the backbone seam.

Shapes: B batch, F latent frames, C channels, H W latent height and width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solarwm.backbones.seam import CoverageReport, VideoCodec
from solarwm.backbones.wan22_core.conditions import WanConditions, wan_conditions
from solarwm.backbones.wan22_core.model import WanTransformer, initialise
from solarwm.data.tensors import LatentBatch
from solarwm.nn.cache import ChunkCache, CleanContext
from solarwm.nn.chunks import ChunkWindow
from solarwm.nn.layouts import Layout, cached_layout, forced_layout, full_layout, history_layout
from solarwm.nn.sequence import FrameSplit, SequencePeers, SplitLayout, whole
from solarwm.nn.time import TimeCoordinate
from solarwm.routes.spec import BackboneSpec, Profile

NATIVE_TIME_SCALE = 1000.0


class WanBackbone:
    """One Wan family at one profile; holds no weights."""

    def __init__(
        self,
        spec: BackboneSpec,
        profile: Profile,
        *,
        translation_transform: str,
        numerics: str,
        window: ChunkWindow | None,
    ) -> None:
        if translation_transform not in spec.camera_transforms:
            raise ValueError(
                f"{spec.family} knows the camera transforms {spec.camera_transforms}, "
                f"not {translation_transform!r}"
            )
        self.spec = spec
        self.profile = profile
        self.translation_transform = translation_transform
        self.numerics = numerics
        self.compile_flex = False
        self.sequence: SequencePeers | None = None
        self.time = TimeCoordinate.named(spec.time_convention, scale=NATIVE_TIME_SCALE)
        self.layouts = ("bidirectional", *(("teacher_forcing", "cached") if window else ()))
        self._window = window

    @property
    def window(self) -> ChunkWindow:
        """History rule of the causal layouts; raises `ValueError` for a family without."""
        if self._window is None:
            raise ValueError(f"{self.spec.family} has no causal layout")
        return self._window

    def build(
        self, *, device: torch.device | str, seed: int, endpoint_gate: float | None = None
    ) -> nn.Module:
        """A transformer on `device`; on `meta` nothing is allocated and nothing drawn."""
        with torch.device("meta"):
            module = WanTransformer(self.profile.dims, endpoint_gate=endpoint_gate)
        if torch.device(device).type == "meta":
            return module
        module = module.to_empty(device=device)
        initialise(module, seed)
        return module

    def load(
        self,
        module: nn.Module,
        path: Path,
        *,
        weights: str,
        endpoint: str = "exact",
        check: bool = False,
    ) -> CoverageReport:
        """Fill `module` from a published or diffusers file, directory or `model.pt`.

        `endpoint` is `exact`, `fill` or `drop`, see the seam; `check` compares names and shapes
        only. Raises `SolarError` `weights.*` (exit 3) unless every tensor is found once with its
        shape.
        """
        from solarwm.backbones.wan22_core.weights import load_weights

        return load_weights(module, path, weights=weights, endpoint=endpoint, check=check)

    def conditions(self, batch: LatentBatch) -> WanConditions:
        """Text states and cameras, once a batch."""
        return wan_conditions(batch, self.translation_transform)

    def with_text(self, conditions: WanConditions, text_BTD: Tensor) -> WanConditions:
        """The same cameras under another prompt; one text serves every row."""
        return conditions.with_text(text_BTD)

    def frames(self, conditions: WanConditions, start: int, stop: int) -> WanConditions:
        """The conditions of the latent frames start..stop-1."""
        return conditions.frames(start, stop)

    def rows(self, conditions: WanConditions, index_I: Tensor) -> WanConditions:
        """The conditions of the samples `index`; samples may repeat."""
        return conditions.rows(index_I)

    def clean_context(
        self, clean_BFCHW: Tensor, *, sigma_BF: Tensor | None = None, shared: bool = True
    ) -> CleanContext:
        """The clean half of a teacher-forced sequence, at noise level 0 or `sigma`."""
        level = clean_BFCHW.new_zeros(clean_BFCHW.shape[:2], dtype=torch.float32)
        return CleanContext(
            latents_BFCHW=clean_BFCHW,
            sigma_BF=level if sigma_BF is None else sigma_BF,
            shared=shared,
        )

    def open_cache(self, latents_BFCHW: Tensor) -> ChunkCache:
        """An empty cache; buffers are made by the first forward."""
        return ChunkCache(window=self.window, max_frames=latents_BFCHW.shape[1])

    def velocity(
        self,
        module: nn.Module,
        latents_BFCHW: Tensor,
        sigma_BF: Tensor,
        conditions: WanConditions,
        *,
        layout: str = "bidirectional",
        endpoint_BF: Tensor | None = None,
        context: CleanContext | None = None,
        cache: ChunkCache | None = None,
    ) -> Tensor:
        """Canonical velocity eps - x0, fp32 [B,F,C,H,W], at one noise level a frame."""
        if layout not in self.layouts:
            raise ValueError(f"{self.spec.family} has the layouts {self.layouts}, not {layout!r}")
        if (context is not None, cache is not None) != (
            layout == "teacher_forcing",
            layout == "cached",
        ):
            raise ValueError("teacher_forcing takes a context, cached a cache, bidirectional none")
        latents, sigma, end = latents_BFCHW, sigma_BF.float(), endpoint_BF
        if end is not None:
            end = end.float()
        if cache is not None:
            return self._cached(module, latents, sigma, conditions, cache, end, commit=False)
        if context is None:
            full = full_layout(
                self._grid(latents),
                head_dim=self.profile.dims.head_dim,
                device=latents.device,
                camera=conditions.camera,
            )
            return self._predicted(module, latents, sigma, conditions, end, full)
        arrangement = forced_layout(
            context,
            window=self.window,
            grid=self._grid(latents),
            head_dim=self.profile.dims.head_dim,
            camera=conditions.camera,
            flex=self.compile_flex,
        )
        if arrangement.joint:
            clean = context.latents_BFCHW
            if clean.shape != latents.shape:
                raise ValueError(
                    f"the clean half is {tuple(clean.shape)}, the noisy half {tuple(latents.shape)}"
                )
            level = context.sigma_BF.float()
            latents = torch.cat([clean.to(latents.dtype), latents], dim=1)
            sigma = torch.cat([level, sigma], dim=1)
            end = None if end is None else torch.cat([level, end], dim=1)
        return self._predicted(
            module, latents, sigma, conditions, end, arrangement, segments=1 + arrangement.joint
        )

    def commit(
        self,
        module: nn.Module,
        clean_BFCHW: Tensor,
        conditions: WanConditions,
        cache: ChunkCache,
        *,
        sigma_BF: Tensor | None = None,
    ) -> None:
        """Write finished frames into `cache`, one forward without output."""
        frames = clean_BFCHW.shape[1]
        level = clean_BFCHW.new_zeros(clean_BFCHW.shape[:2], dtype=torch.float32)
        level = level if sigma_BF is None else sigma_BF.float()
        if frames == self.window.chunk_frames:
            self._cached(module, clean_BFCHW, level, conditions, cache, None, commit=True)
            return
        self._without_gradients()
        arrangement = history_layout(
            cache,
            grid=self._grid(clean_BFCHW),
            head_dim=self.profile.dims.head_dim,
            device=clean_BFCHW.device,
            cameras=conditions.cameras(),
            rebase=self.numerics != "published",
            flex=self.compile_flex,
        )
        self._predicted(module, clean_BFCHW, level, conditions, None, arrangement)
        cache.position += frames

    def _cached(
        self,
        module: nn.Module,
        latents_BFCHW: Tensor,
        sigma_BF: Tensor,
        conditions: WanConditions,
        cache: ChunkCache,
        endpoint_BF: Tensor | None,
        *,
        commit: bool,
    ) -> Tensor:
        self._without_gradients()
        arrangement = cached_layout(
            cache,
            grid=self._grid(latents_BFCHW),
            head_dim=self.profile.dims.head_dim,
            device=latents_BFCHW.device,
            cameras=conditions.cameras(),
            rebase=self.numerics != "published",
            text_BTD=conditions.text_BTD,
            commit=commit,
        )
        velocity = self._predicted(
            module, latents_BFCHW, sigma_BF, conditions, endpoint_BF, arrangement
        )
        cache.made_ready(arrangement.key)
        if commit:
            cache.position += latents_BFCHW.shape[1]
        return velocity

    def _predicted(
        self,
        module: nn.Module,
        latents_BFCHW: Tensor,
        sigma_BF: Tensor,
        conditions: WanConditions,
        endpoint_BF: Tensor | None,
        layout: Layout,
        *,
        segments: int = 1,
    ) -> Tensor:
        """Velocity of the layout's last frames; over sequence-parallel peers each runs its own."""
        peers, split = self.sequence, None
        if peers is not None:
            if latents_BFCHW.requires_grad:
                raise ValueError("a forward split over ranks gives its latents no gradient")
            peers.require_equal(
                {"times": sigma_BF, "endpoints": endpoint_BF, "noisy latents": latents_BFCHW},
                label="forward inputs",
            )
            split = FrameSplit(
                frames=latents_BFCHW.shape[1] // segments,
                sp_size=peers.sp_size,
                segments=segments,
            )
            latents_BFCHW = split.take(latents_BFCHW, peers.sp_rank)
            sigma_BF = split.take(sigma_BF, peers.sp_rank)
            if endpoint_BF is not None:
                endpoint_BF = split.take(endpoint_BF, peers.sp_rank)
            layout = SplitLayout(layout, split, peers)
        prediction = module(
            latents_BFCHW,
            self.time.to_native(sigma_BF),
            conditions.text_BTD,
            endpoint_BF=None if endpoint_BF is None else self.time.to_native(endpoint_BF),
            layout=layout,
        )
        if peers is not None and split is not None and layout.out_frames:
            prediction = whole(prediction, split, peers, label="velocity")
        return self.time.velocity_from_model(prediction)

    def _grid(self, latents_BFCHW: Tensor) -> tuple[int, int, int]:
        _, patch_h, patch_w = self.profile.dims.patch
        _, frames, _, height, width = latents_BFCHW.shape
        return frames, height // patch_h, width // patch_w

    @staticmethod
    def _without_gradients() -> None:
        if torch.is_grad_enabled():
            raise ValueError("a cache keeps no gradients; train through teacher_forcing")

    def codec(self, *, base_path: Path | None, assets: Any, device: torch.device) -> VideoCodec:
        """The VAE and text encoder: the small shipped pair for every profile but `released`."""
        from solarwm.backbones.wan22_core.codec import open_codec

        return open_codec(
            self.profile, self.spec, base_path=base_path, assets=assets, device=device
        )
