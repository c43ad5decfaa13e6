"""Camera poses in numpy: rigid inverse, rebase to the first frame, and the rows latents look at.

Poses are OpenCV camera-to-world matrices (x right, y down, z forward), shape [...,4,4]. N frames, F
latents. Functions keep float32 and float64 as given; anything else becomes float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

Poses = NDArray[np.floating]

WAN_CYCLE = (4,)
LTX_CYCLE = (8,)
H3_CYCLE = (1, 4, 4, 4, 4)


def floating(poses: ArrayLike) -> Poses:
    """The poses as a float array: float64 kept, everything else float32."""
    array = np.asarray(poses)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def invert_se3(poses: ArrayLike) -> Poses:
    """Inverse of rigid poses [...,4,4]: `R' = R^T, t' = -R^T t`, bottom row exact."""
    matrices = floating(poses)
    rotation = matrices[..., :3, :3]
    inverse = np.zeros_like(matrices)
    inverse[..., :3, :3] = np.swapaxes(rotation, -1, -2)
    inverse[..., :3, 3] = -np.einsum("...ji,...j->...i", rotation, matrices[..., :3, 3])
    inverse[..., 3, 3] = 1
    return inverse


def relative_to_first(c2w_N44: ArrayLike) -> Poses:
    """Poses seen from the first camera: `R_i = C_0^-1 C_i`, row 0 the identity exactly."""
    poses = floating(c2w_N44)
    relative = invert_se3(poses[0]) @ poses
    relative[0] = np.eye(4, dtype=poses.dtype)
    return relative


def viewmats(c2w_F44: ArrayLike) -> Poses:
    """First-frame-relative world-to-camera of the given cameras; row 0 the identity exactly."""
    return invert_se3(relative_to_first(c2w_F44))


def latent_rows(
    num_latents: int, *, lead: Sequence[int] = (1,), cycle: Sequence[int] = WAN_CYCLE
) -> tuple[int, ...]:
    """The pixel frame each latent starts with: 0, then steps `lead`, then `cycle` repeated (Wan:
    0,1,5,9,...).
    """
    return tuple(islice(_rows(lead, cycle), num_latents))


def h3_latent_rows(num_latents: int) -> tuple[int, ...]:
    """Rows of MiniMax-H3 latents: 0,1,5,9,13 of every 17 frames."""
    return latent_rows(num_latents, lead=(), cycle=H3_CYCLE)


def _rows(lead: Sequence[int], cycle: Sequence[int]) -> Iterator[int]:
    row = 0
    yield row
    for step in lead:
        row += step
        yield row
    while True:
        for step in cycle:
            row += step
            yield row
