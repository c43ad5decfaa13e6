"""Held-out clips as the model sees them: anchor, caption states, cameras, and the encoded truth.

Shapes: F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from collections.abc import Iterator
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

    def opening(self, case: Case) -> tuple[RawClip, Iterator[np.ndarray] | None]:
        """Cameras and first picture of a case, and all pictures [Y,X,3] of its truth one by one; None
        where there is no truth."""
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
    latent where there is no truth, or where it is read picture by picture."""

    @property
    def has_truth(self) -> bool:
        """Whether there is a clip to compare with."""
        return len(self.latents_FCHW) > 1


def encode_opening(clips: Clips, case: Case, codec: VideoCodec) -> EncodedCase:
    """Read and encode what a rollout starts from: anchor, caption, cameras. The truth is not read."""
    opening, _ = clips.opening(case)
    anchor_FCHW = codec.encode_video(torch.from_numpy(opening.pixels_NYX3[:1])).float().cpu()
    inputs = _inputs(clips, case, codec, opening, anchor_FCHW[0])
    return EncodedCase(inputs=inputs, latents_FCHW=anchor_FCHW)


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
        inputs=_inputs(clips, case, codec, truth, anchor),
        latents_FCHW=codec.encode_video(pixels).float().cpu(),
    )


def _inputs(
    clips: Clips, case: Case, codec: VideoCodec, clip: RawClip, anchor_CHW: torch.Tensor
) -> CaseInputs:
    return CaseInputs(
        case=case,
        anchor_CHW=anchor_CHW,
        text_TD=codec.encode_text([case.prompt])[0].float().cpu(),
        c2w_N44=np.asarray(clip.c2w_N44),
        other_c2w_N44=clips.next_track(case),
        intrinsics_33=np.asarray(clip.intrinsics_33),
    )
