"""A batch to what the Wan transformer is conditioned on.

Shapes: B batch, F latent frames, T text tokens, D text width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from solarwm.camera.torch import TRANSFORMS
from solarwm.data.tensors import LatentBatch
from solarwm.nn.camera_attention import CameraMatrices, camera_matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class WanConditions:
    """Text states and camera matrices of one batch."""

    text_BTD: Tensor
    camera: CameraMatrices | None


def wan_conditions(batch: LatentBatch, transform: str) -> WanConditions:
    """Text and camera matrices of a batch; cameras stay fp32 to the point of use."""
    viewmats = TRANSFORMS[transform](batch.viewmats_BF44.float())
    return WanConditions(
        text_BTD=batch.text_BTD, camera=camera_matrices(viewmats, batch.intrinsics_B33)
    )
