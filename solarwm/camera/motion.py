"""A camera track in words, so that a wrong convention shows: "moves forward 1.2"."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from solarwm.camera.poses import floating, relative_to_first

_AXES = (("right", "left"), ("down", "up"), ("forward", "back"))
_LEAST_MOVE = 1e-3
_LEAST_TURN_DEG = 0.5


def describe_motion(c2w_N44: ArrayLike) -> str:
    """Where the last camera stands and looks, seen from the first; lengths as in the track."""
    last = relative_to_first(floating(c2w_N44))[-1].astype(np.float64)
    parts = [
        f"moves {names[0] if length > 0 else names[1]} {abs(length):.2g}"
        for names, length in zip(_AXES, last[:3, 3], strict=True)
        if abs(length) > max(_LEAST_MOVE, 0.1 * float(np.abs(last[:3, 3]).max()))
    ]
    forward = last[:3, 2]
    yaw = np.degrees(np.arctan2(forward[0], forward[2]))
    pitch = np.degrees(np.arcsin(np.clip(-forward[1], -1, 1)))
    if abs(yaw) > _LEAST_TURN_DEG:
        parts.append(f"turns {'right' if yaw > 0 else 'left'} {abs(yaw):.0f} deg")
    if abs(pitch) > _LEAST_TURN_DEG:
        parts.append(f"tilts {'up' if pitch > 0 else 'down'} {abs(pitch):.0f} deg")
    return ", ".join(parts) or "stands still"
