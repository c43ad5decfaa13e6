"""What a camera track must satisfy before it may be trained on. Pure checks: a fault names the
frame and the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solarwm.camera.poses import Poses, relative_to_first

BOTTOM_TOLERANCE = 1e-5
ROTATION_TOLERANCE = 2e-3
AUDIT_S = 10.0
MAX_DISTANCE = 4096.0
"""Farthest a camera may stand from the origin: fp32 poses beyond it are coarser than half a thousandth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackFault:
    """What is wrong with a track: `kind` is `shape`, `not-finite`, `not-rigid` or `guard`; `frame`
    its row, if one.
    """

    kind: str
    frame: int | None
    why: str


def track_fault(c2w_N44: NDArray[np.generic]) -> TrackFault | None:
    """The first pose that is no finite rigid motion, or None. Shape, numbers, bottom row, R^T R =
    I, det = +1; then distance from the origin, at which fp32 still tells positions apart.
    """
    shape = c2w_N44.shape
    if len(shape) != 3 or shape[1:] != (4, 4) or not np.issubdtype(c2w_N44.dtype, np.floating):
        why = f"the array is {c2w_N44.dtype}{list(shape)}; poses are floating [frames,4,4]"
        return TrackFault(kind="shape", frame=None, why=why)
    if not shape[0]:
        return TrackFault(kind="shape", frame=None, why="the track has 0 poses")
    poses = c2w_N44.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(poses).all(axis=(1, 2)))
    if bad.size:
        return TrackFault(
            kind="not-finite", frame=int(bad[0]), why="the pose holds NaN or infinity"
        )
    bottom = np.abs(poses[:, 3] - np.array([0.0, 0.0, 0.0, 1.0])).max(axis=1)
    bad = np.flatnonzero(bottom > BOTTOM_TOLERANCE)
    if bad.size:
        frame = int(bad[0])
        row = ", ".join(f"{value:g}" for value in poses[frame, 3])
        hint = "; the matrix looks transposed" if _looks_transposed(poses[frame]) else ""
        why = f"the bottom row is [{row}], not [0, 0, 0, 1]{hint}"
        return TrackFault(kind="not-rigid", frame=frame, why=why)
    rotation = poses[:, :3, :3]
    drift = np.abs(np.swapaxes(rotation, 1, 2) @ rotation - np.eye(3)).max(axis=(1, 2))
    bad = np.flatnonzero(drift > ROTATION_TOLERANCE)
    if bad.size:
        frame = int(bad[0])
        why = (
            f"the rotation is not orthonormal: |R^T R - I| = {drift[frame]:.3g}, "
            f"limit {ROTATION_TOLERANCE:g}"
        )
        return TrackFault(kind="not-rigid", frame=frame, why=why)
    determinant = np.linalg.det(rotation)
    bad = np.flatnonzero(np.abs(determinant - 1) > ROTATION_TOLERANCE)
    if bad.size:
        frame = int(bad[0])
        why = f"the rotation has determinant {determinant[frame]:.4g}, not 1 (a mirrored axis)"
        return TrackFault(kind="not-rigid", frame=frame, why=why)
    distance = np.abs(poses[:, :3, 3]).max(axis=1)
    bad = np.flatnonzero(distance > MAX_DISTANCE)
    if bad.size:
        frame = int(bad[0])
        why = (
            f"the camera is {distance[frame]:.4g} from the origin, limit {MAX_DISTANCE:g}: fp32 poses "
            "lose the motion there; rebase the track on its first frame"
        )
        return TrackFault(kind="guard", frame=frame, why=why)
    return None


def audited_frames(frames: int, rate: float, *, audit_s: float = AUDIT_S) -> int:
    """Pixel frames of the audited prefix at `rate` frames per second (0 = unknown: all)."""
    if rate <= 0:
        return frames
    return min(frames, max(1, math.ceil(rate * audit_s)))


def audited_latents(
    rows: Sequence[int], frames: int, rate: float, *, audit_s: float = AUDIT_S
) -> int:
    """Latents whose pixel row lies in the audited prefix, at least 1."""
    limit = audited_frames(frames, rate, audit_s=audit_s)
    return max(1, sum(row < limit for row in rows))


def magnitude_fault(
    c2w_N44: Poses,
    *,
    rows: Sequence[int],
    rate: float,
    max_rel_translation: float | None,
    max_camera_abs: float | None,
    audit_s: float = AUDIT_S,
) -> TrackFault | None:
    """Whether the clip's first-frame-relative cameras stay within the limits; None as a limit turns
    it off.

    Looked at are the latents' pixel `rows` inside the first `audit_s` seconds: first max |t|, then
    max |entry|.
    """
    kept = rows[: audited_latents(rows, len(c2w_N44), rate, audit_s=audit_s)]
    relative = relative_to_first(c2w_N44[list(kept)])
    distance = np.sqrt(np.sum(relative[:, :3, 3].astype(np.float64) ** 2, axis=1))
    worst = int(distance.argmax())
    if max_rel_translation is not None and distance[worst] > max_rel_translation:
        why = f"the camera is {distance[worst]:.4g} from its start, limit {max_rel_translation:g}"
        return TrackFault(kind="guard", frame=kept[worst], why=why)
    largest = np.abs(relative).max(axis=(1, 2))
    worst = int(largest.argmax())
    if max_camera_abs is not None and largest[worst] > max_camera_abs:
        why = f"a matrix entry is {largest[worst]:.4g}, limit {max_camera_abs:g}"
        return TrackFault(kind="guard", frame=kept[worst], why=why)
    return None


def _looks_transposed(pose: NDArray[np.float64]) -> bool:
    return bool(
        np.abs(pose[:3, 3]).max() <= BOTTOM_TOLERANCE and abs(pose[3, 3] - 1) <= BOTTOM_TOLERANCE
    )
