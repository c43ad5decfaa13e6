"""The tensors of one microbatch, whatever the store they came from.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, T text tokens, D text width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentBatch:
    """Clean latents with their conditions and identities; rows are samples."""

    latents_BFCHW: torch.Tensor
    """Normalised VAE latents, fp32."""
    text_BTD: torch.Tensor
    """Text encoder states, rows past the prompt zero."""
    viewmats_BF44: torch.Tensor
    """First-frame-relative world-to-camera at the pixel frame each latent starts with, fp32, row 0 identity,
    before any translation transform."""
    intrinsics_B33: torch.Tensor
    """Focal lengths divided by width and height, fp32."""
    sample_ids: tuple[str, ...]
    start_frames: tuple[int, ...]
    slots: tuple[int, ...]
    """Place 0..G-1 of each row in the global batch of this optimizer step."""
    occurrences: tuple[int, ...]
    """Index of each row in the data order, counted from the start of training."""

    @property
    def batch_size(self) -> int:
        """Rows in this microbatch."""
        return len(self.sample_ids)

    def to(self, device: torch.device) -> LatentBatch:
        """The same batch with its tensors on `device`."""
        return LatentBatch(
            latents_BFCHW=self.latents_BFCHW.to(device),
            text_BTD=self.text_BTD.to(device),
            viewmats_BF44=self.viewmats_BF44.to(device),
            intrinsics_B33=self.intrinsics_B33.to(device),
            sample_ids=self.sample_ids,
            start_frames=self.start_frames,
            slots=self.slots,
            occurrences=self.occurrences,
        )
