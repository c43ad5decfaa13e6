"""Cameras of LTX and H3 records against float64 inverses, and their guards."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.data.cameras import CameraRules
from solarwm.data.latent_cameras import record_cameras
from solarwm.data.latent_records import camera_rows
from solarwm.data.stored_tensors import stored
from solarwm.errors.types import SolarError
from tests.unit.data.latent_samples import contract, tensors


def _track(count: int, pace: float = 0.02) -> np.ndarray:
    poses = np.tile(np.eye(4), (count, 1, 1))
    for index, pose in enumerate(poses):
        angle = 0.01 * index + 0.3
        pose[:3, :3] = [
            [np.cos(angle), 0, np.sin(angle)],
            [0, 1, 0],
            [-np.sin(angle), 0, np.cos(angle)],
        ]
        pose[:3, 3] = [1.0 + pace * index, 2.0, -0.5]
    return poses


def _views(c2w: np.ndarray) -> np.ndarray:
    """Oracle: general inverses in float64."""
    return np.linalg.inv(c2w) @ c2w[0]


def _cameras(family: str, changes: dict, fps: float = 16.0, **rules):
    made = contract(family)
    given = {**tensors(made), **{k: stored(v, "float32") for k, v in changes.items()}}
    return record_cameras(
        made, given, rules=CameraRules(**rules), source_fps=fps, sample_id="demo/one"
    )


@pytest.mark.parametrize("per_latent", [False, True])
def test_h3_views_are_relative_to_the_first_camera(per_latent: bool) -> None:
    made = contract("minimax_h3")
    rows = list(camera_rows("minimax_h3", made.latent_frames))
    track = _track(made.pixel_frames)
    lens = np.array([[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1.0]])
    changes = {"camera_c2w": track[rows], "camera_K": lens} if per_latent else {"camera_c2w": track}
    found = _cameras("minimax_h3", changes)
    np.testing.assert_allclose(found.viewmats_F44, _views(track[rows]), atol=2e-6)
    assert found.intrinsics_F33.shape == (made.latent_frames, 3, 3)
    np.testing.assert_array_equal(found.intrinsics_F33[-1], lens.astype(np.float32))


def test_ltx_views_are_those_stored() -> None:
    made = contract("ltx25_video")
    track = _track(made.pixel_frames)
    views = _views(track[list(camera_rows("ltx25_video", made.latent_frames))])
    found = _cameras("ltx25_video", {"relative_w2c": views})
    np.testing.assert_array_equal(found.viewmats_F44, views.astype(np.float32))


@pytest.mark.parametrize(
    ("family", "name"), [("ltx25_video", "relative_w2c"), ("minimax_h3", "camera_c2w")]
)
def test_a_camera_beyond_the_limits_is_told_with_its_pixel_frame(family: str, name: str) -> None:
    made = contract(family)
    rows = camera_rows(family, made.latent_frames)
    track = _track(made.pixel_frames, pace=1.0)
    stored_track = _views(track[list(rows)]) if name == "relative_w2c" else track
    with pytest.raises(SolarError) as raised:
        _cameras(family, {name: stored_track}, fps=0.0)
    assert raised.value.code == "camera.guard"
    assert f"frame {rows[-1]}" in raised.value.why
    assert _cameras(family, {name: stored_track}, max_rel_translation=None, max_camera_abs=None)


def test_ltx_guards_look_at_the_first_ten_seconds_of_the_source() -> None:
    made = contract("ltx25_video")
    rows = list(camera_rows("ltx25_video", made.latent_frames))
    views = _views(_track(made.pixel_frames, pace=1.0)[rows])
    assert _cameras("ltx25_video", {"relative_w2c": views}, fps=1.0)
    with pytest.raises(SolarError):
        _cameras("ltx25_video", {"relative_w2c": views}, fps=16.0)
