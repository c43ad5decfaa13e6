from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vec3 = tuple[float, float, float]
SceneKind = Literal["room", "outdoor"]

FACES: tuple[str, ...] = ("left wall", "right wall", "ceiling", "floor", "near wall", "far wall")
"""Face order of the shell and of every box: x low, x high, y low, y high, z low, z high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texture:
    """Colour of a surface: a base and two sinusoids through space.

    colour(p) = base + sum_i amplitude_i * sin(wave_i . p + phase_i), RGB in 0..1, p in metres.
    """

    base: Vec3
    waves: tuple[Vec3, Vec3]
    phases: tuple[float, float]
    amplitudes: tuple[Vec3, Vec3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """An axis-aligned box between two corners, in metres."""

    name: str
    low: Vec3
    high: Vec3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pillar:
    """An upright cylinder standing on the floor, from `top` (y, negative is up) to y = 0."""

    name: str
    x: float
    z: float
    radius: float
    top: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Where clips start: a pose, and how far a clip may start from it (metres, radians)."""

    position: Vec3
    yaw: float
    jitter_m: float
    jitter_rad: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything there is to see. World axes: x right, y down, z forward; the floor is y = 0.

    `low` and `high` bound the room; outdoors they bound where a camera may walk.
    `textures` has one entry a surface: six faces of the shell (`FACES`; outdoors only the
    floor is seen), six of each box, one of each pillar.
    """

    name: str
    kind: SceneKind
    low: Vec3
    high: Vec3
    boxes: tuple[Box, ...]
    pillars: tuple[Pillar, ...]
    textures: tuple[Texture, ...]
    light: Vec3
    spawn: Spawn

    def clearance(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Distance in metres from each point [N,3] to the nearest wall or object, seen from above.

        Height is ignored, so a camera never flies over an object; negative means inside.
        """
        x, z = points[:, 0].astype(np.float64), points[:, 2].astype(np.float64)
        gaps = [x - self.low[0], self.high[0] - x, z - self.low[2], self.high[2] - z]
        for box in self.boxes:
            dx = np.maximum(box.low[0] - x, x - box.high[0])
            dz = np.maximum(box.low[2] - z, z - box.high[2])
            outside = np.hypot(np.maximum(dx, 0.0), np.maximum(dz, 0.0))
            gaps.append(outside + np.minimum(np.maximum(dx, dz), 0.0))
        gaps.extend(np.hypot(x - p.x, z - p.z) - p.radius for p in self.pillars)
        return np.min(np.stack(gaps), axis=0)

    def surface_names(self) -> tuple[str, ...]:
        """Name of what each surface belongs to, in the order of `textures`."""
        names = ["sky", "sky", "sky", "ground", "sky", "sky"]
        if self.kind == "room":
            names = list(FACES)
        for box in self.boxes:
            names.extend([box.name] * 6)
        names.extend(pillar.name for pillar in self.pillars)
        return tuple(names)


def the_room() -> Scene:
    """The default world: one fixed room with four boxes and three pillars, seen from one spot."""
    rng = np.random.Generator(np.random.PCG64(20260401))
    shell: tuple[Vec3, ...] = (
        (0.62, 0.34, 0.30),
        (0.30, 0.42, 0.62),
        (0.78, 0.76, 0.70),
        (0.42, 0.34, 0.28),
        (0.50, 0.50, 0.52),
        (0.36, 0.56, 0.46),
    )
    boxes = (
        Box(name="red crate", low=(-3.1, -1.2, 0.2), high=(-1.9, 0.0, 1.4)),
        Box(name="yellow cabinet", low=(2.0, -2.0, 1.2), high=(3.2, 0.0, 2.4)),
        Box(name="blue bench", low=(-0.9, -0.8, 2.9), high=(0.9, 0.0, 3.6)),
        Box(name="dark green shelf", low=(-3.9, -2.3, 2.8), high=(-2.7, 0.0, 3.8)),
    )
    pillars = (
        Pillar(name="white pillar", x=-1.2, z=1.9, radius=0.25, top=-3.0),
        Pillar(name="orange pillar", x=1.5, z=0.6, radius=0.28, top=-3.0),
        Pillar(name="purple pillar", x=3.6, z=-0.6, radius=0.30, top=-3.0),
    )
    box_colours = ((0.75, 0.18, 0.15), (0.85, 0.70, 0.18), (0.16, 0.26, 0.72), (0.10, 0.32, 0.16))
    pillar_colours = ((0.88, 0.88, 0.86), (0.90, 0.48, 0.12), (0.46, 0.20, 0.56))
    return Scene(
        name="room",
        kind="room",
        low=(-4.5, -3.0, -4.5),
        high=(4.5, 0.0, 4.5),
        boxes=boxes,
        pillars=pillars,
        textures=_paint(rng, shell, box_colours, pillar_colours),
        light=(-0.45, -0.75, -0.48),
        spawn=Spawn(
            position=(0.0, -1.5, -2.4), yaw=0.0, jitter_m=0.6, jitter_rad=float(np.deg2rad(20))
        ),
    )


_COLOURS: dict[str, Vec3] = {
    "red": (0.78, 0.18, 0.16),
    "yellow": (0.86, 0.74, 0.20),
    "blue": (0.18, 0.30, 0.74),
    "green": (0.20, 0.52, 0.24),
    "white": (0.88, 0.88, 0.86),
    "orange": (0.90, 0.50, 0.14),
    "purple": (0.48, 0.22, 0.58),
    "grey": (0.48, 0.48, 0.50),
}


def random_scene(rng: np.random.Generator) -> Scene:
    """A scene nobody has seen before, a room or open ground, with a start anywhere free.

    The hard case: nothing about one such scene helps with the next.
    """
    outdoor = bool(rng.random() < 0.5)
    half_x, half_z = rng.uniform(3.5, 5.5, size=2)
    height = float(rng.uniform(2.6, 3.6))
    names = list(_COLOURS)

    boxes, box_colours, pillars, pillar_colours = [], [], [], []
    for _ in range(4):
        x, z = rng.uniform(-0.8, 0.8, size=2) * (half_x, half_z)
        wide, deep = rng.uniform(0.3, 0.8, size=2)
        tall = float(rng.uniform(0.6, 2.2))
        colour = names[int(rng.integers(len(names)))]
        low, high = (x - wide, -tall, z - deep), (x + wide, 0.0, z + deep)
        boxes.append(Box(name=f"{colour} box", low=_vec3(low), high=_vec3(high)))
        box_colours.append(_COLOURS[colour])
    for _ in range(3):
        x, z = rng.uniform(-0.8, 0.8, size=2) * (half_x, half_z)
        colour = names[int(rng.integers(len(names)))]
        top = float(-height if not outdoor else -rng.uniform(1.5, 3.5))
        radius = float(rng.uniform(0.2, 0.4))
        pillars.append(
            Pillar(name=f"{colour} pillar", x=float(x), z=float(z), radius=radius, top=top)
        )
        pillar_colours.append(_COLOURS[colour])
    shell = [_vec3(rng.uniform(0.25, 0.8, size=3)) for _ in FACES]
    return Scene(
        name="outdoor" if outdoor else "random room",
        kind="outdoor" if outdoor else "room",
        low=(-float(half_x), -height, -float(half_z)),
        high=(float(half_x), 0.0, float(half_z)),
        boxes=tuple(boxes),
        pillars=tuple(pillars),
        textures=_paint(rng, shell, box_colours, pillar_colours),
        light=(-0.45, -0.75, -0.48),
        spawn=Spawn(
            position=(0.0, -1.5, 0.0),
            yaw=0.0,
            jitter_m=float(min(half_x, half_z)) - 0.4,
            jitter_rad=float(np.pi),
        ),
    )


def _vec3(values: Sequence[float] | NDArray[np.floating]) -> Vec3:
    x, y, z = values
    return float(x), float(y), float(z)


def _paint(
    rng: np.random.Generator,
    shell: Sequence[Vec3],
    boxes: Sequence[Vec3],
    pillars: Sequence[Vec3],
) -> tuple[Texture, ...]:
    surfaces = [*shell]
    for colour in boxes:
        surfaces.extend([colour] * 6)
    surfaces.extend(pillars)
    return tuple(_texture(rng, colour) for colour in surfaces)


def _texture(rng: np.random.Generator, base: Vec3) -> Texture:
    waves, amplitudes = [], []
    for _ in range(2):
        direction = rng.normal(size=3)
        length_m = rng.uniform(1.2, 4.0)
        waves.append(_vec3(direction / np.linalg.norm(direction) * (2 * np.pi / length_m)))
        amplitudes.append(_vec3(rng.uniform(-0.16, 0.16, size=3)))
    phases = rng.uniform(0.0, 2 * np.pi, size=2)
    return Texture(
        base=base,
        waves=(waves[0], waves[1]),
        phases=(float(phases[0]), float(phases[1])),
        amplitudes=(amplitudes[0], amplitudes[1]),
    )
