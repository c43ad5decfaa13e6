"""Wrong cameras made of a right one, to see whether a model listens. c2w in, c2w out, [N,4,4],
first pose kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from solarwm.camera.poses import Poses, floating, invert_se3, relative_to_first


def inverse(c2w_N44: ArrayLike) -> Poses:
    """Every pose relative to the first one inverted; this reverses dollies too."""
    poses = floating(c2w_N44)
    return _placed(poses, invert_se3(relative_to_first(poses)))


def mirror(c2w_N44: ArrayLike) -> Poses:
    """The path mirrored left to right: relative poses conjugated by diag(-1,1,1); a straight dolly
    stays as it is.
    """
    poses = floating(c2w_N44)
    flip = np.array([-1, 1, 1, 1], poses.dtype)
    return _placed(poses, flip[:, None] * relative_to_first(poses) * flip)


def frozen(c2w_N44: ArrayLike) -> Poses:
    """A camera that never moves."""
    poses = floating(c2w_N44)
    return np.broadcast_to(poses[:1], poses.shape).copy()


def other(c2w_N44: ArrayLike, other_N44: ArrayLike) -> Poses:
    """The path of another clip, started at this clip's first pose; both have N poses."""
    poses = floating(c2w_N44)
    path = floating(other_N44).astype(poses.dtype)
    if len(path) != len(poses):
        raise ValueError(f"the other path has {len(path)} poses, this clip {len(poses)}")
    return _placed(poses, relative_to_first(path))


VARIANTS: dict[str, Callable[[ArrayLike], Poses]] = {
    "inverse": inverse,
    "mirror": mirror,
    "frozen": frozen,
}


def _placed(poses: Poses, relative: Poses) -> Poses:
    placed = poses[0] @ relative
    placed[0] = poses[0]
    return placed
