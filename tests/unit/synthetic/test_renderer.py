from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solarwm.synthetic.clips import plan_clip
from solarwm.synthetic.paths import look
from solarwm.synthetic.renderer import FIXED_LENS, Lens, cast, render
from solarwm.synthetic.scene import Box, Scene, Texture, the_room

FLAT = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def flat(colour: tuple[float, float, float]) -> Texture:
    return Texture(base=colour, waves=FLAT, phases=(0.0, 0.0), amplitudes=FLAT)


def one_box() -> Scene:
    """A grey room whose only object is a red box with its front face at z = 1."""
    box = Box(name="red box", low=(-0.5, -2.0, 1.0), high=(0.7, -1.0, 2.0))
    textures = (*[flat((0.5, 0.5, 0.5))] * 6, *[flat((0.9, 0.0, 0.0))] * 6)
    return replace(the_room(), boxes=(box,), pillars=(), textures=textures)


def pose(x: float = 0.0, y: float = -1.5, z: float = -2.0, yaw: float = 0.0) -> np.ndarray:
    return look(np.array([[x, y, z]]), np.array([yaw]), np.zeros(1))


def project(point: np.ndarray, c2w: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Pixel positions and depths [N,3] of world points [N,3]."""
    rotation, centre = c2w[:3, :3].astype(np.float64), c2w[:3, 3].astype(np.float64)
    camera = (point - centre) @ rotation
    pixels = camera @ k.T
    return np.column_stack([pixels[:, :2] / pixels[:, 2:], camera[:, 2]])


@pytest.mark.parametrize("lens", [FIXED_LENS, Lens(fx=0.8, fy=1.2, cx=0.45, cy=0.55)])
def test_box_corners_fall_where_the_pinhole_puts_them(lens: Lens) -> None:
    scene, c2w = one_box(), pose(x=0.1)
    height, width = 120, 180
    red = cast(scene, c2w, lens=lens, height=height, width=width).surface[0] == 6 + 4
    corners = np.array([[-0.5, -2.0, 1.0], [0.7, -1.0, 1.0]])
    (left, top, _), (right, bottom, _) = project(corners, c2w[0], lens.matrix(height, width))
    rows, columns = np.nonzero(red)
    assert columns.min() + 0.5 == pytest.approx(left + 0.5, abs=0.5)
    assert columns.max() + 0.5 == pytest.approx(right - 0.5, abs=0.5)
    assert rows.min() + 0.5 == pytest.approx(top + 0.5, abs=0.5)
    assert rows.max() + 0.5 == pytest.approx(bottom - 0.5, abs=0.5)


def test_pixels_show_the_box_with_the_width_of_its_projection() -> None:
    height, width = 64, 96
    picture = render(one_box(), pose(), height=height, width=width)[0].astype(np.float64)
    green = picture[height // 2, 28:68, 1]
    share_of_box = 1.0 - green / green[0]
    assert share_of_box.sum() == pytest.approx(FIXED_LENS.fx * width * 1.2 / 3.0, abs=0.5)


def test_the_far_wall_is_as_deep_as_it_is_far() -> None:
    hits = cast(one_box(), pose(z=-2.0), height=20, width=30)
    wall = hits.surface[0] == 5
    assert wall.any()
    assert hits.depth[0][wall] == pytest.approx(6.5, rel=1e-5)


def test_ceiling_is_above_and_the_floor_below() -> None:
    surface = cast(the_room(), pose(), height=40, width=60).surface[0]
    assert surface[0, 30] == 2
    assert surface[-1, 30] == 3


def test_a_turn_to_the_right_moves_the_picture_to_the_left() -> None:
    point = np.array([[0.0, -1.5, 2.0]])
    k = FIXED_LENS.matrix(64, 96)
    before, after = (project(point, pose(yaw=yaw)[0], k)[0, 0] for yaw in (0.0, 0.2))
    assert after < before


def test_points_seen_in_two_frames_reproject_onto_each_other() -> None:
    clip = plan_clip("room", seed=3, split="train", index=4, frames=9)
    height, width = 96, 144
    c2w, k = clip.path.c2w[[0, 6]], FIXED_LENS.matrix(height, width)
    hits = cast(clip.scene, c2w, height=height, width=width)
    v, u = np.mgrid[0:height:5, 0:width:5].reshape(2, -1)
    depth = hits.depth[0, v, u].astype(np.float64)
    rays = np.linalg.solve(k, np.stack([u + 0.5, v + 0.5, np.ones_like(u)]))
    points = (c2w[0, :3, :3] @ (rays * depth)).T + c2w[0, :3, 3]

    there = project(points, c2w[1], k)
    column, row = np.floor(there[:, 0]).astype(int), np.floor(there[:, 1]).astype(int)
    inside = (there[:, 2] > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    column, row, there = column[inside], row[inside], there[inside]
    same = hits.surface[1, row, column] == hits.surface[0, v, u][inside]
    assert same.mean() > 0.85
    error = np.abs(hits.depth[1, row, column] - there[:, 2])[same] / there[same, 2]
    assert np.median(error) < 0.01
    assert np.quantile(error, 0.9) < 0.05


def test_a_picture_does_not_depend_on_the_frames_around_it() -> None:
    clip = plan_clip("room", seed=0, split="test", index=0, frames=11)
    whole = render(clip.scene, clip.path.c2w, height=32, width=48)
    alone = render(clip.scene, clip.path.c2w[7:8], height=32, width=48)
    assert np.array_equal(whole[7], alone[0])


def test_open_ground_has_sky_above_and_ground_below() -> None:
    clips = (plan_clip("random", seed=5, split="train", index=i, frames=2) for i in range(20))
    clip = next(c for c in clips if c.scene.kind == "outdoor")
    c2w = look(np.array([[0.0, -1.5, 0.0]]), np.zeros(1), np.zeros(1))
    bare = replace(clip.scene, boxes=(), pillars=(), textures=clip.scene.textures[:6])
    surface = cast(bare, c2w, height=20, width=30).surface[0]
    assert (surface[:10] == -1).all()
    assert (surface[10:] == 3).all()
    assert render(bare, c2w, height=20, width=30).shape == (1, 20, 30, 3)
