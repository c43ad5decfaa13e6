"""Pinhole intrinsics, normalised: focal lengths and centre divided by picture width and height."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FIXED_FX = 969.6969696969696 / 1920
FIXED_FY = 969.6969696969696 / 1080
FIXED_CENTRE = 0.5


def fixed_intrinsics() -> NDArray[np.float32]:
    """The one lens of the published Wan camera path, [3,3] float32."""
    return matrix(FIXED_FX, FIXED_FY, FIXED_CENTRE, FIXED_CENTRE)


def matrix(fx: float, fy: float, cx: float, cy: float) -> NDArray[np.float32]:
    """K [3,3] float32 without skew."""
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], np.float32)


def as_focal_centre(stored: ArrayLike) -> NDArray[np.float64]:
    """(fx, fy, cx, cy) rows [M,4] of intrinsics stored as [3,3], [N,3,3], [4] or [N,4]; ValueError
    otherwise.
    """
    array = np.asarray(stored, np.float64)
    if array.shape[-2:] == (3, 3) and array.ndim in (2, 3):
        flat = array.reshape(-1, 3, 3)
        array = np.stack([flat[:, 0, 0], flat[:, 1, 1], flat[:, 0, 2], flat[:, 1, 2]], axis=1)
    elif array.ndim in (1, 2) and array.shape[-1] == 4:
        array = array.reshape(-1, 4)
    else:
        raise ValueError(
            f"intrinsics of shape {list(array.shape)} are none of [3,3], [N,3,3], [4], [N,4]"
        )
    if not np.isfinite(array).all() or (array[:, :2] <= 0).any():
        raise ValueError("focal lengths must be finite and above 0")
    return array


def through_crop(
    focal_centre_M4: NDArray[np.float64],
    *,
    source: tuple[int, int],
    resized: tuple[int, int],
    corner: tuple[int, int],
    canvas: tuple[int, int],
) -> NDArray[np.float64]:
    """Normalised (fx, fy, cx, cy) after a resize and crop; every pair is (height, width) or (top,
    left) in pixels.

    Values are read as normalised already when none exceeds 4, else as pixels of the source.
    """
    rows = focal_centre_M4.copy()
    if np.abs(rows).max() <= 4:
        rows[:, 0::2] *= source[1]
        rows[:, 1::2] *= source[0]
    rows[:, 0::2] *= resized[1] / source[1]
    rows[:, 1::2] *= resized[0] / source[0]
    rows[:, 2] -= corner[1]
    rows[:, 3] -= corner[0]
    rows[:, 0::2] /= canvas[1]
    rows[:, 1::2] /= canvas[0]
    return rows
