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
from solarwm.nn.time import TimeCoordinate
from solarwm.routes.spec import BackboneSpec, Profile

NATIVE_TIME_SCALE = 1000.0


class WanBackbone:
    """One Wan family at one profile; holds no weights."""

    layouts = ("bidirectional",)

    def __init__(self, spec: BackboneSpec, profile: Profile, *, translation_transform: str) -> None:
        if translation_transform not in spec.camera_transforms:
            raise ValueError(
                f"{spec.family} knows the camera transforms {spec.camera_transforms}, "
                f"not {translation_transform!r}"
            )
        self.spec = spec
        self.profile = profile
        self.translation_transform = translation_transform
        self.time = TimeCoordinate.named(spec.time_convention, scale=NATIVE_TIME_SCALE)

    def build(self, *, device: torch.device | str, seed: int) -> nn.Module:
        """A transformer on `device`; on `meta` nothing is allocated and nothing drawn."""
        if torch.device(device).type == "meta":
            with torch.device("meta"):
                return WanTransformer(self.profile.dims)
        with torch.device("meta"):
            module = WanTransformer(self.profile.dims)
        module = module.to_empty(device=device)
        initialise(module, seed)
        return module

    def load(self, module: nn.Module, path: Path, *, weights: str) -> CoverageReport:
        """Fill `module` from a published or diffusers file, directory or `model.pt`.

        Raises `SolarError` `weights.*` (exit 3) unless every tensor is found once with its shape.
        """
        from solarwm.backbones.wan22_core.weights import load_weights

        return load_weights(module, path, weights=weights)

    def conditions(self, batch: LatentBatch) -> WanConditions:
        """Text states and camera matrices, once a batch."""
        return wan_conditions(batch, self.translation_transform)

    def velocity(
        self,
        module: nn.Module,
        latents_BFCHW: Tensor,
        sigma_BF: Tensor,
        conditions: WanConditions,
        *,
        layout: str = "bidirectional",
        endpoint_BF: Tensor | None = None,
    ) -> Tensor:
        """Canonical velocity eps - x0, fp32 [B,F,C,H,W], at one noise level a frame."""
        if layout not in self.layouts:
            raise ValueError(f"{self.spec.family} has the layouts {self.layouts}, not {layout!r}")
        if endpoint_BF is not None:
            raise ValueError(f"{self.spec.family} has no flow-map endpoint in this layout")
        time_BF = self.time.to_native(sigma_BF.float())
        prediction = module(latents_BFCHW, time_BF, conditions.text_BTD, conditions.camera)
        return self.time.velocity_from_model(prediction)

    def codec(self, *, base_path: Path | None, assets: Any, device: torch.device) -> VideoCodec:
        """The VAE and text encoder: the small shipped pair for every profile but `released`."""
        from solarwm.backbones.wan22_core.codec import open_codec

        return open_codec(
            self.profile, self.spec, base_path=base_path, assets=assets, device=device
        )
