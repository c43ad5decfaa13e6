"""A batch to what the Wan transformer is conditioned on.

Shapes: B batch, F latent frames, T text tokens, D text width, I chosen samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from solarwm.camera.torch import TRANSFORMS
from solarwm.data.tensors import LatentBatch
from solarwm.nn.camera_attention import CameraMatrices, camera_matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class WanConditions:
    """Text states and cameras of one batch; cameras stay fp32 to the point of use."""

    text_BTD: Tensor
    viewmats_BF44: Tensor | None
    """After the translation transform."""
    intrinsics_BF33: Tensor | None
    camera: CameraMatrices | None
    """The matrices of both, computed once a batch."""

    def cameras(self) -> tuple[Tensor, Tensor] | None:
        """Viewmats and intrinsics, or None without cameras."""
        if self.viewmats_BF44 is None or self.intrinsics_BF33 is None:
            return None
        return self.viewmats_BF44, self.intrinsics_BF33

    def with_text(self, text_BTD: Tensor) -> WanConditions:
        """The same cameras under another prompt; one text serves every row."""
        return replace(self, text_BTD=text_BTD.expand(len(self.text_BTD), -1, -1))

    def frames(self, start: int, stop: int) -> WanConditions:
        """The conditions of the latent frames start..stop-1."""
        if self.viewmats_BF44 is None or self.intrinsics_BF33 is None or self.camera is None:
            return self
        return WanConditions(
            text_BTD=self.text_BTD,
            viewmats_BF44=self.viewmats_BF44[:, start:stop],
            intrinsics_BF33=self.intrinsics_BF33[:, start:stop],
            camera=self.camera.frames(start, stop),
        )

    def rows(self, index_I: Tensor) -> WanConditions:
        """The conditions of the samples `index`; samples may repeat."""
        return WanConditions(
            text_BTD=self.text_BTD[index_I],
            viewmats_BF44=None if self.viewmats_BF44 is None else self.viewmats_BF44[index_I],
            intrinsics_BF33=None if self.intrinsics_BF33 is None else self.intrinsics_BF33[index_I],
            camera=None if self.camera is None else self.camera.rows(index_I),
        )


def wan_conditions(batch: LatentBatch, transform: str) -> WanConditions:
    """Text and cameras of a batch."""
    viewmats = TRANSFORMS[transform](batch.viewmats_BF44.float())
    frames = viewmats.shape[1]
    intrinsics = batch.intrinsics_B33.float()[:, None].expand(-1, frames, -1, -1)
    return WanConditions(
        text_BTD=batch.text_BTD,
        viewmats_BF44=viewmats,
        intrinsics_BF33=intrinsics,
        camera=camera_matrices(viewmats, batch.intrinsics_B33),
    )
