"""Held-out clips as the model sees them: anchor, caption states, cameras, and the encoded truth.

Shapes: F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from solarwm.backbones.seam import VideoCodec
from solarwm.inference.cases import Case
from solarwm.inference.clips import HeldOutClips
from solarwm.inference.generate import CaseInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedCase:
    """A case with what the codec made of it; tensors on the CPU, fp32. Pixels are not kept."""

    inputs: CaseInputs
    latents_FCHW: torch.Tensor
    """The whole clip encoded: the reference of the quality figures, never seen by the model."""


def encode_case(clips: HeldOutClips, case: Case, codec: VideoCodec) -> EncodedCase:
    """Read and encode a case. The anchor is the first pixel frame encoded alone."""
    truth = clips.clip(case)
    pixels = torch.from_numpy(truth.pixels_NYX3)
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
