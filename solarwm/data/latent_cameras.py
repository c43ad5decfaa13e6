"""Cameras that lie in a latent record: per latent frame, first-frame-relative, guarded as published.

Shapes: F latent frames, N pixel frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from solarwm.camera.guards import audited_latents, magnitude_fault
from solarwm.camera.poses import invert_se3, viewmats
from solarwm.data.cameras import CameraRules, refuse_guard
from solarwm.data.latent_records import camera_rows
from solarwm.data.record_contracts import EncoderContract
from solarwm.data.stored_tensors import StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCameras:
    """World-to-camera of each latent relative to the first, and its normalised lens as stored."""

    viewmats_F44: NDArray[np.float32]
    intrinsics_F33: NDArray[np.float32]


def record_cameras(
    contract: EncoderContract,
    tensors: Mapping[str, StoredTensor],
    *,
    rules: CameraRules,
    source_fps: float,
    sample_id: str,
) -> LatentCameras:
    """The cameras of a checked LTX-2.5 or MiniMax-H3 record; Wan records carry the source track.

    LTX stores relative world-to-camera and is guarded on its inverse within the first ten seconds
    of the source (0 fps: throughout); H3 stores absolute camera-to-world of every frame or latent
    and is guarded on the views of all latents. Raises `camera.guard` (exit 3), which training passes
    over.
    """
    rows = camera_rows(contract.family, contract.latent_frames)
    if contract.family == "ltx25_video":
        views = tensors["relative_w2c"].widened()
        lens = tensors["camera_K"].widened()
        kept = audited_latents(rows, contract.pixel_frames, source_fps)
        guarded = invert_se3(views[:kept])
    else:
        poses = tensors["camera_c2w"].widened()
        lens = tensors["camera_K"].widened()
        if len(poses) != contract.latent_frames:
            poses = poses[list(rows)]
        if lens.ndim == 3 and len(lens) != contract.latent_frames:
            lens = lens[list(rows)]
        views = viewmats(poses)
        guarded = views
    fault = magnitude_fault(
        guarded,
        rows=range(len(guarded)),
        rate=0.0,
        max_rel_translation=rules.max_rel_translation,
        max_camera_abs=rules.max_camera_abs,
    )
    if fault:
        refuse_guard(fault.why, None if fault.frame is None else rows[fault.frame], sample_id)
    return LatentCameras(
        viewmats_F44=np.asarray(views, np.float32),
        intrinsics_F33=np.broadcast_to(lens, (contract.latent_frames, 3, 3)).astype(np.float32),
    )
