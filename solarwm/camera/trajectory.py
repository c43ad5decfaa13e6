"""A camera track from held keys: `w*19,j*7`.

Steps are separated by commas; a step is keys held together and how many latent frames they are held
(`*1` may be left out). `w s a d` move forward, back, left, right; `i k j l` turn up, down, left,
right; `.` stands still. Movement follows where the camera looks, on the level ground.

Poses are OpenCV camera-to-world (x right, y down, z forward). N pixel frames.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOVES = {"w": (0.0, 1.0), "s": (0.0, -1.0), "a": (-1.0, 0.0), "d": (1.0, 0.0)}
"""(right, forward) a key moves."""
TURNS = {"j": (-1.0, 0.0), "l": (1.0, 0.0), "i": (0.0, 1.0), "k": (0.0, -1.0)}
"""(right, up) a key turns."""
STEP_MOVE = 0.08
"""World units a key moves in one latent frame."""
STEP_TURN_DEG = 3.0
"""Degrees a key turns in one latent frame."""
MOST_PITCH_DEG = 85.0
MOST_STEPS = 100_000
_STEP = re.compile(r"\s*([wsadijkl]+|\.)\s*(?:\*\s*(\d{1,6}))?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Keys held together over `steps` latent frames."""

    keys: str
    steps: int


def parse_trajectory(text: str) -> tuple[Held, ...]:
    """The steps of a trajectory; ValueError names the part that is none."""
    held: list[Held] = []
    for number, part in enumerate(text.split(","), start=1):
        match = _STEP.fullmatch(part)
        if match is None:
            raise ValueError(
                f"part {number} is {part.strip()!r}, not KEYS or KEYS*N of wsad ijkl ."
            )
        keys, count = match[1].lower(), int(match[2] or 1)
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"part {number} holds {twice[0]!r} twice; say how long with *N")
        if count < 1:
            raise ValueError(f"part {number} is held 0 times")
        held.append(Held(keys=keys, steps=count))
    if sum(item.steps for item in held) > MOST_STEPS:
        raise ValueError(f"more than {MOST_STEPS} steps")
    return tuple(held)


def trajectory_track(
    held: tuple[Held, ...],
    *,
    frames_per_step: int,
    step_move: float = STEP_MOVE,
    step_turn_deg: float = STEP_TURN_DEG,
) -> NDArray[np.float64]:
    """Poses float64 [N,4,4], N = 1 + steps x `frames_per_step`, the first the identity.

    A step is spread evenly over its frames. Pitch stops at `MOST_PITCH_DEG`.
    """
    walker = Walker(frames_per_step, step_move=step_move, step_turn_deg=step_turn_deg)
    poses = [walker.pose[None]]
    poses += [walker.walk(item.keys) for item in held for _ in range(item.steps)]
    return np.concatenate(poses)


class Walker:
    """A camera that walks by held keys, step after step, from the identity on."""

    def __init__(
        self,
        frames_per_step: int,
        *,
        step_move: float = STEP_MOVE,
        step_turn_deg: float = STEP_TURN_DEG,
    ) -> None:
        self._frames = frames_per_step
        self._turn = np.radians(step_turn_deg) / frames_per_step
        self._move = step_move / frames_per_step
        self._yaw = self._pitch = 0.0
        self._place = np.zeros(3)

    @property
    def pose(self) -> NDArray[np.float64]:
        """Where it is, camera-to-world [4,4]."""
        return _pose(self._place, self._yaw, self._pitch)

    def walk(self, keys: str) -> NDArray[np.float64]:
        """The poses [N,4,4] of one step with these keys held; none held stands still."""
        side, ahead = np.sum([(0.0, 0.0), *(MOVES[key] for key in keys if key in MOVES)], axis=0)
        right, up = np.sum([(0.0, 0.0), *(TURNS[key] for key in keys if key in TURNS)], axis=0)
        limit = np.radians(MOST_PITCH_DEG)
        poses = []
        for _ in range(self._frames):
            self._yaw += right * self._turn
            self._pitch = float(np.clip(self._pitch + up * self._turn, -limit, limit))
            yaw = self._yaw
            across = side * np.array([np.cos(yaw), 0.0, -np.sin(yaw)])
            along = ahead * np.array([np.sin(yaw), 0.0, np.cos(yaw)])
            self._place = self._place + self._move * (across + along)
            poses.append(self.pose)
        return np.stack(poses)


def _pose(place: NDArray[np.float64], yaw: float, pitch: float) -> NDArray[np.float64]:
    cy, sy, cp, sp = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    pose = np.eye(4)
    pose[:3, 0] = (cy, 0.0, -sy)
    pose[:3, 1] = (sy * sp, cp, cy * sp)
    pose[:3, 2] = (sy * cp, -sp, cy * cp)
    pose[:3, 3] = place
    return pose
