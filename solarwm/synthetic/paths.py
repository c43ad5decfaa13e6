from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from solarwm.synthetic.scene import Scene

PathKind = Literal["dolly", "pan", "truck", "orbit", "walk", "wasd"]
PATH_KINDS: tuple[PathKind, ...] = get_args(PathKind)

CLEARANCE_M = 0.35
"""No camera comes closer than this to a wall or an object."""

MOTION_SCALE = 1.4
"""How far clips move in the default world; 1.0 is a calm clip."""

_TRIES = 400
_KEYS = {"W": (0.0, 1.0), "S": (0.0, -1.0), "A": (-1.0, 0.0), "D": (1.0, 0.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraPath:
    """A camera track: its kind, which way it goes, and c2w float32 [T,4,4] (OpenCV axes)."""

    kind: PathKind
    motion: str
    c2w: NDArray[np.float32]


def generator(seed: int, purpose: str, index: int) -> np.random.Generator:
    """The random stream of one clip for one purpose; the same on every machine and worker."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{index}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def draw_path(
    scene: Scene, rng: np.random.Generator, *, frames: int, scale: float = MOTION_SCALE
) -> CameraPath:
    """A path of a random kind that keeps `CLEARANCE_M` everywhere.

    A rejected path is drawn again with another start and size but of the same kind, so that
    wide movements are not weeded out. Raises ValueError when the scene has no room for one.
    """
    kind = PATH_KINDS[int(rng.integers(len(PATH_KINDS)))]
    for attempt in range(_TRIES):
        # Later attempts move less, so a crowded spot still yields its kind.
        size = scale * 0.5 ** (4.0 * attempt / _TRIES)
        path = _draw(kind, scene, rng, frames, size)
        if scene.clearance(path.c2w[:, :3, 3]).min() >= CLEARANCE_M:
            return path
    raise ValueError(f"no {kind} path with {CLEARANCE_M} m clearance in scene {scene.name!r}")


def wasd_path(
    keys: str, *, position: tuple[float, float, float], yaw: float, step_m: float, frames: int
) -> CameraPath:
    """The path a player walks with held keys, shared out evenly over the clip.

    `keys` is letters of W, A, S, D (forward, left, back, right); each moves `step_m` metres.
    Raises ValueError for any other letter or an empty string.
    """
    wrong = sorted(set(keys.upper()) - set(_KEYS))
    if wrong or not keys:
        raise ValueError(f"keys must be letters of WASD, got {keys!r}")
    moves = np.array([_KEYS[k] for k in keys.upper()]) * step_m
    corners = np.vstack([np.zeros((1, 2)), np.cumsum(moves, axis=0)])
    when = np.linspace(0.0, len(keys), frames)
    side, ahead = (np.interp(when, np.arange(len(keys) + 1), corners[:, a]) for a in range(2))
    points = _ahead(position, yaw, side, ahead)
    return CameraPath(
        kind="wasd",
        motion=f"walks with keys {keys.upper()}",
        c2w=look(points, np.full(frames, yaw), np.zeros(frames)),
    )


def look(
    position: NDArray[np.floating], yaw: NDArray[np.floating], pitch: NDArray[np.floating]
) -> NDArray[np.float32]:
    """c2w float32 [T,4,4] from positions [T,3] and angles [T] in radians.

    Yaw turns right, pitch tilts up; both 0 looks along +z with +y down.
    """
    cy, sy, cp, sp = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    c2w = np.zeros((len(yaw), 4, 4))
    c2w[:, :3, 0] = np.stack([cy, np.zeros_like(cy), -sy], axis=1)
    c2w[:, :3, 1] = np.stack([sy * sp, cp, cy * sp], axis=1)
    c2w[:, :3, 2] = np.stack([sy * cp, -sp, cy * cp], axis=1)
    c2w[:, :3, 3] = position
    c2w[:, 3, 3] = 1.0
    return c2w.astype(np.float32)


def _draw(
    kind: PathKind, scene: Scene, rng: np.random.Generator, frames: int, scale: float
) -> CameraPath:
    spawn = scene.spawn
    angle, radius = rng.uniform(0.0, 2 * np.pi), spawn.jitter_m * np.sqrt(rng.random())
    start = (
        spawn.position[0] + radius * np.sin(angle),
        spawn.position[1] + rng.uniform(-0.15, 0.15),
        spawn.position[2] + radius * np.cos(angle),
    )
    yaw = spawn.yaw + rng.uniform(-spawn.jitter_rad, spawn.jitter_rad)
    pitch = rng.uniform(-0.10, 0.04)
    time = np.linspace(0.0, 1.0, frames)
    if rng.random() < 0.5:
        time = time * time * (3.0 - 2.0 * time)
    sign = 1.0 if rng.random() < 0.5 else -1.0
    size = scale * rng.uniform(0.6, 1.4)
    still, level = np.zeros(frames), np.full(frames, pitch)

    if kind == "dolly":
        # Most of the free space of a spawn is ahead.
        sign = 1.0 if rng.random() < 0.75 else -1.0
        points = _ahead(start, yaw, still, sign * 1.5 * size * time)
        motion = "dollies forward" if sign > 0 else "dollies back"
        return CameraPath(kind=kind, motion=motion, c2w=look(points, yaw + still, level))
    if kind == "pan":
        turn = yaw + sign * 0.75 * size * time
        motion = "pans right" if sign > 0 else "pans left"
        points = _ahead(start, yaw, still, still)
        return CameraPath(kind=kind, motion=motion, c2w=look(points, turn, level))
    if kind == "truck":
        points = _ahead(start, yaw, sign * 1.2 * size * time, still)
        motion = "trucks right" if sign > 0 else "trucks left"
        return CameraPath(kind=kind, motion=motion, c2w=look(points, yaw + still, level))
    if kind == "orbit":
        distance = rng.uniform(1.8, 3.0)
        centre = _ahead(start, yaw, np.zeros(1), np.full(1, distance))[0]
        swing = yaw + sign * 0.65 * size * time
        points = centre - distance * np.stack([np.sin(swing), still, np.cos(swing)], axis=1)
        points[:, 1] = start[1]
        # Turning right about a point ahead carries the camera to the left.
        motion = "orbits to the left" if sign > 0 else "orbits to the right"
        return CameraPath(kind=kind, motion=motion, c2w=look(points, swing, level))
    if kind == "walk":
        bend = sign * rng.uniform(0.3, 0.8) * scale
        heading = yaw + bend * time
        pace = 1.4 * size * np.diff(time, prepend=0.0)
        points = np.stack(
            [
                start[0] + np.cumsum(np.sin(heading) * pace),
                start[1] + 0.02 * np.sin(8 * np.pi * time),
                start[2] + np.cumsum(np.cos(heading) * pace),
            ],
            axis=1,
        )
        side = "right" if sign > 0 else "left"
        return CameraPath(
            kind=kind, motion=f"walks forward, turning {side}", c2w=look(points, heading, level)
        )
    keys = "".join("WASD"[int(rng.choice(4, p=[0.4, 0.25, 0.1, 0.25]))] for _ in range(3))
    return wasd_path(keys, position=start, yaw=yaw, step_m=0.7 * size, frames=frames)


def _ahead(
    start: tuple[float, float, float],
    yaw: float,
    side: NDArray[np.floating],
    ahead: NDArray[np.floating],
) -> NDArray[np.float64]:
    """Points [T,3] reached from `start` by going sideways and ahead, in metres, on the level."""
    x = start[0] + np.cos(yaw) * side + np.sin(yaw) * ahead
    z = start[2] - np.sin(yaw) * side + np.cos(yaw) * ahead
    return np.stack([x, np.full_like(x, start[1]), z], axis=1)
