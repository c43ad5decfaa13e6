"""Clips whose latents were encoded before training, read from their records.

Shapes: F latent frames, C latent channels, H W latent height and width, T text tokens, D text
width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from solarwm.camera.poses import viewmats
from solarwm.data.latent_reading import LatentFormat, read_latent_clip
from solarwm.data.record_contracts import contract_of
from solarwm.training.clips import ClipSource, EncodedClip, Window
from solarwm.training.latent_sets import require_records


class PreencodedClips(ClipSource):
    """Clips by occurrence with the substitute rule of `ClipSource`; encodes nothing."""

    def __init__(self, *, wanted: LatentFormat, **settings: Any) -> None:
        super().__init__(**settings)
        self._wanted = wanted

    def is_cached(self, window: Window) -> bool:
        """True: nothing is left to encode."""
        return True

    def _load(self, window: Window) -> EncodedClip:
        row = self._index.rows[window.row_ordinal]
        clip = read_latent_clip(self._reader, row, self._wanted)
        poses = np.asarray(clip.track.c2w_N44, dtype=np.float32)[self._rows]
        return EncodedClip(
            sample_id=row.sample_id,
            start_frame=window.start_frame,
            latents_FCHW=torch.from_numpy(np.array(clip.latents_FCHW)),
            text_TD=torch.from_numpy(np.array(clip.text_TD)),
            viewmats_F44=torch.from_numpy(np.array(viewmats(poses), dtype=np.float32)),
            intrinsics_33=torch.from_numpy(np.array(clip.track.intrinsics_33, dtype=np.float32)),
        )


def preencoded_clips(resolved: Any, **settings: Any) -> PreencodedClips:
    """The clips of a run on latents, from what `ClipSource` takes.

    Raises `latent.*` (exit 3) when the set was made by another codec.
    """
    config, spec = resolved.config, resolved.route.spec
    data, codec = config.data, settings["codec"]
    require_records(settings["index"], data, codec_digest=codec.digest)
    released = config.model.profile == "released"
    wanted = LatentFormat(
        contract=contract_of(
            resolved.route.family,
            spec.profiles[config.model.profile],
            pixel_frames=data.pixel_frames,
            height=data.height,
            width=data.width,
            dtype=data.latent_dtype,
        ),
        schema=data.preencode_schema,
        codec_digest=codec.digest,
        window_assignment=data.preencode_window_assignment if released else "",
        fps=data.fps,
        rules=settings["rules"],
    )
    return PreencodedClips(wanted=wanted, **settings)
