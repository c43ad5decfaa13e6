"""Held-out clips as the model sees them: anchor, caption states, cameras, and the encoded truth.

Shapes: F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from solarwm.backbones.seam import VideoCodec
from solarwm.data.records import RawClip
from solarwm.inference.cases import Case
from solarwm.inference.generate import CaseInputs
from solarwm.routes.spec import LatentGeometry


class Clips(Protocol):
    """Where the clips of cases come from."""

    def clip(self, case: Case) -> RawClip:
        """Pixels and cameras; of a clip without truth the first picture only."""
        ...

    def next_track(self, case: Case) -> np.ndarray:
        """Absolute cameras [N,4,4] of the next case."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedCase:
    """A case with what the codec made of it; tensors on the CPU, fp32. Pixels are not kept."""

    inputs: CaseInputs
    latents_FCHW: torch.Tensor
    """The whole clip encoded: the reference of the quality figures, never seen by the model. One
    latent where there is no truth."""

    @property
    def has_truth(self) -> bool:
        """Whether there is a clip to compare with."""
        return len(self.latents_FCHW) > 1


def encode_case(
    clips: Clips, case: Case, codec: VideoCodec, *, geometry: LatentGeometry | None = None
) -> EncodedCase:
    """Read and encode a case. The anchor is the first pixel frame encoded alone.

    `geometry` cuts the encoded truth to a length the codec has latents for.
    """
    truth = clips.clip(case)
    pixels = torch.from_numpy(truth.pixels_NYX3)
    if geometry is not None and geometry.latents(len(pixels)) is None:
        pixels = pixels[: geometry.nearest_frames(len(pixels))[0]]
    anchor = codec.encode_video(pixels[:1])[0].float().cpu()
    return EncodedCase(
        inputs=CaseInputs(
            case=case,
            anchor_CHW=anchor,
            text_TD=codec.encode_text([case.prompt])[0].float().cpu(),
            c2w_N44=np.asarray(truth.c2w_N44),
            other_c2w_N44=clips.next_track(case),
            intrinsics_33=np.asarray(truth.intrinsics_33),
        ),
        latents_FCHW=codec.encode_video(pixels).float().cpu(),
    )
