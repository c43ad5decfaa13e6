from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solarwm.synthetic.scene import Scene, Texture

_FRAMES_AT_ONCE = 4
_SKY_LOW = np.array([0.80, 0.86, 0.92], dtype=np.float32)
_SKY_HIGH = np.array([0.36, 0.56, 0.86], dtype=np.float32)
_FOG_M = 22.0
_AMBIENT, _DIRECT = 0.84, 0.34
_FAR = np.float32(1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lens:
    """A pinhole: focal lengths and principal point, as fractions of picture width and height."""

    fx: float
    fy: float
    cx: float = 0.5
    cy: float = 0.5

    def matrix(self, height: int, width: int) -> NDArray[np.float64]:
        """The 3x3 intrinsics in pixels; pixel (0, 0) has its centre at (0.5, 0.5)."""
        fx, fy = self.fx * width, self.fy * height
        cx, cy = self.cx * width, self.cy * height
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


FIXED_LENS = Lens(fx=969.6969696969696 / 1920, fy=969.6969696969696 / 1080)
"""The intrinsics that the Wan routes assume for every clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """What each ray meets: depth along the camera's z axis in metres, and the surface index.

    Both [T,H,W]; a ray into the sky has surface -1 and a very large depth.
    """

    depth: NDArray[np.float32]
    surface: NDArray[np.int16]


def render(
    scene: Scene,
    c2w: NDArray[np.floating],
    *,
    lens: Lens = FIXED_LENS,
    height: int,
    width: int,
) -> NDArray[np.uint8]:
    """Pictures of the scene, u8 RGB [T,H,W,3], from camera-to-world matrices [T,4,4].

    Four rays are cast for each pixel and averaged.
    """
    paint = _Paint(scene.textures)
    out = np.empty((len(c2w), height, width, 3), dtype=np.uint8)
    for first in range(0, len(c2w), _FRAMES_AT_ONCE):
        poses = c2w[first : first + _FRAMES_AT_ONCE]
        rays, eyes = _rays(poses, lens, 2 * height, 2 * width)
        depth, surface = _cast(scene, rays, eyes)
        colour = _shade(scene, paint, rays, eyes, depth, surface)
        colour = colour.reshape(3, len(poses), height, 2, width, 2).mean(axis=(3, 5))
        pixels = np.rint(np.clip(colour, 0.0, 1.0) * 255.0)
        out[first : first + len(poses)] = np.moveaxis(pixels, 0, -1)
    return out


def cast(
    scene: Scene, c2w: NDArray[np.floating], *, lens: Lens = FIXED_LENS, height: int, width: int
) -> Hits:
    """Depth and surface index through each pixel centre, from camera-to-world matrices [T,4,4]."""
    depth, surface = _cast(scene, *_rays(c2w, lens, height, width))
    shape = (len(c2w), height, width)
    return Hits(depth=depth.reshape(shape), surface=surface.reshape(shape))


def _rays(
    c2w: NDArray[np.floating], lens: Lens, height: int, width: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Directions [3,T,H*W] of length 1 along the camera's z, and eyes [3,T,1]."""
    x = ((np.arange(width) + 0.5) / width - lens.cx) / lens.fx
    y = ((np.arange(height) + 0.5) / height - lens.cy) / lens.fy
    grid = np.stack([*np.meshgrid(x, y), np.ones((height, width))]).reshape(3, -1)
    directions = np.einsum("tij,jn->itn", c2w[:, :3, :3], grid).astype(np.float32)
    # A zero component would make 0 * inf in the slab tests.
    directions[directions == 0.0] = 1e-9
    return directions, c2w[:, :3, 3].T[:, :, None].astype(np.float32)


def _cast(
    scene: Scene, rays: NDArray[np.float32], eyes: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    inverse = 1.0 / rays
    depth, surface = _shell(scene, inverse, eyes)
    for index, box in enumerate(scene.boxes):
        near, axis = _enter(box.low, box.high, inverse, eyes)
        closer = near < depth
        depth = np.where(closer, near, depth)
        positive = (np.take_along_axis(rays, axis[None], axis=0)[0] < 0).astype(np.int16)
        surface = np.where(closer, 6 + 6 * index + 2 * axis + positive, surface)
    for index, pillar in enumerate(scene.pillars):
        near = _meet_pillar(pillar.x, pillar.z, pillar.radius, pillar.top, rays, eyes)
        closer = near < depth
        depth = np.where(closer, near, depth)
        surface = np.where(closer, 6 + 6 * len(scene.boxes) + index, surface)
    return depth, surface.astype(np.int16)


def _shell(
    scene: Scene, inverse: NDArray[np.float32], eyes: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    ahead = inverse > 0
    if scene.kind == "outdoor":
        depth = np.where(ahead[1], (scene.high[1] - eyes[1]) * inverse[1], _FAR)
        return depth, np.where(ahead[1], 3, -1).astype(np.int16)
    low = np.asarray(scene.low, dtype=np.float32)[:, None, None]
    high = np.asarray(scene.high, dtype=np.float32)[:, None, None]
    leave = np.where(ahead, high - eyes, low - eyes) * inverse
    axis = leave.argmin(axis=0)
    depth = leave.min(axis=0)
    side = np.take_along_axis(ahead, axis[None], axis=0)[0]
    return depth, (2 * axis + side).astype(np.int16)


def _enter(
    low: tuple[float, float, float],
    high: tuple[float, float, float],
    inverse: NDArray[np.float32],
    eyes: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Depth at which each ray enters a box (far away if it misses), and the axis of that face."""
    near = np.full(inverse.shape[1:], -_FAR, dtype=np.float32)
    far = np.full(inverse.shape[1:], _FAR, dtype=np.float32)
    axis = np.zeros(inverse.shape[1:], dtype=np.int16)
    for a in range(3):
        one = (np.float32(low[a]) - eyes[a]) * inverse[a]
        two = (np.float32(high[a]) - eyes[a]) * inverse[a]
        enter = np.minimum(one, two)
        axis[enter > near] = a
        np.maximum(near, enter, out=near)
        np.minimum(far, np.maximum(one, two), out=far)
    return np.where((near < far) & (near > 0), near, _FAR), axis


def _meet_pillar(
    x: float,
    z: float,
    radius: float,
    top: float,
    rays: NDArray[np.float32],
    eyes: NDArray[np.float32],
) -> NDArray[np.float32]:
    ox, oz = eyes[0] - np.float32(x), eyes[2] - np.float32(z)
    a = rays[0] * rays[0] + rays[2] * rays[2]
    half_b = ox * rays[0] + oz * rays[2]
    c = ox * ox + oz * oz - np.float32(radius * radius)
    root = half_b * half_b - a * c
    depth = (-half_b - np.sqrt(np.maximum(root, 0.0))) / a
    y = eyes[1] + depth * rays[1]
    hit = (root > 0) & (depth > 0) & (y > top) & (y < 0)
    return np.where(hit, depth, _FAR)


class _Paint:
    """Textures as arrays indexed by surface, so that one gather serves every pixel."""

    def __init__(self, textures: tuple[Texture, ...]) -> None:
        self.base = np.array([t.base for t in textures], dtype=np.float32)
        self.waves = np.array([t.waves for t in textures], dtype=np.float32)
        self.phases = np.array([t.phases for t in textures], dtype=np.float32)
        self.amplitudes = np.array([t.amplitudes for t in textures], dtype=np.float32)


def _shade(
    scene: Scene,
    paint: _Paint,
    rays: NDArray[np.float32],
    eyes: NDArray[np.float32],
    depth: NDArray[np.float32],
    surface: NDArray[np.int16],
) -> NDArray[np.float32]:
    """Colour of every ray, [3,T,N] in 0..1 and a little beyond."""
    index = np.maximum(surface, 0).astype(np.intp)
    point = eyes + rays * np.minimum(depth, 1e3)
    colour = [paint.base[:, c][index] for c in range(3)]
    for wave in range(2):
        phase = paint.phases[:, wave][index]
        for a in range(3):
            phase += paint.waves[:, wave, a][index] * point[a]
        swing = np.sin(phase)
        for c in range(3):
            colour[c] += paint.amplitudes[:, wave, c][index] * swing
    light = _light(scene, point, index)
    shaded = np.stack(colour) * light
    if scene.kind == "outdoor":
        up = np.clip(-rays[1] / np.sqrt((rays * rays).sum(axis=0)), 0.0, 1.0)
        sky = _SKY_LOW[:, None, None] + (_SKY_HIGH - _SKY_LOW)[:, None, None] * np.sqrt(up)
        clear = np.where(surface < 0, 0.0, np.exp(-depth / np.float32(_FOG_M)))
        shaded = sky + (shaded - sky) * clear.astype(np.float32)
    return shaded


def _light(
    scene: Scene, point: NDArray[np.float32], index: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Brightness of every hit: one fixed value a face, Lambert around the pillars."""
    light = np.asarray(scene.light, dtype=np.float32)
    # A face that looks along +axis is lit by the positive part of that light component.
    faces = np.array([_AMBIENT + _DIRECT * s * light[a] for a in range(3) for s in (-1.0, 1.0)])
    inwards = faces[[1, 0, 3, 2, 5, 4]]
    table = np.concatenate([inwards, *[faces] * len(scene.boxes), np.ones(len(scene.pillars))])
    brightness = table.astype(np.float32)[index]
    first = 6 + 6 * len(scene.boxes)
    for offset, pillar in enumerate(scene.pillars):
        on = index == first + offset
        nx = (point[0][on] - np.float32(pillar.x)) / np.float32(pillar.radius)
        nz = (point[2][on] - np.float32(pillar.z)) / np.float32(pillar.radius)
        brightness[on] = _AMBIENT + _DIRECT * (nx * light[0] + nz * light[2])
    return brightness
