"""Translation transforms: what the model sees of world-to-camera translations, in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from solarwm.camera.poses import Poses, floating


def linear(viewmats: ArrayLike) -> Poses:
    """The matrices as they are."""
    return floating(viewmats)


def logd4(viewmats: ArrayLike) -> Poses:
    """`t' = t log(1+|t|) / (4|t|)`, 0 at 0; rotations untouched. Matrices [...,4,4]."""
    matrices = floating(viewmats).copy()
    matrices[..., :3, 3] = logd4_translation(matrices[..., :3, 3])
    return matrices


def logd4_translation(translations: ArrayLike) -> Poses:
    """The same for bare translations [...,3]."""
    vectors = floating(translations)
    length = np.sqrt(np.sum(vectors * vectors, axis=-1, keepdims=True))
    safe = np.where(length > 0, length, np.ones_like(length))
    return vectors * (np.log1p(length) / (4 * safe))


TRANSFORMS: dict[str, Callable[[ArrayLike], Poses]] = {"linear": linear, "logd4": logd4}
