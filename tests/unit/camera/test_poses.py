"""Poses against closed forms, numpy.linalg and the torch twins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solarwm.camera import poses
from solarwm.camera import torch as twin


def turned(yaw: float, position: tuple[float, float, float]) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3] = [
        [np.cos(yaw), 0, np.sin(yaw)],
        [0, 1, 0],
        [-np.sin(yaw), 0, np.cos(yaw)],
    ]
    pose[:3, 3] = position
    return pose


@pytest.fixture
def track() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([turned(rng.uniform(-3, 3), tuple(rng.normal(size=3) * 3)) for _ in range(9)])


def test_the_rigid_inverse_equals_the_general_one(track) -> None:
    np.testing.assert_allclose(poses.invert_se3(track), np.linalg.inv(track), atol=1e-12)


def test_the_first_relative_pose_is_the_identity_exactly(track) -> None:
    relative = poses.relative_to_first(track.astype(np.float32))
    assert np.array_equal(relative[0], np.eye(4))
    assert relative.dtype == np.float32


def test_relative_poses_put_the_first_camera_back_in_front(track) -> None:
    relative = poses.relative_to_first(track)
    np.testing.assert_allclose(track[0] @ relative, track, atol=1e-12)


def test_a_step_forward_shows_as_a_negative_z_in_the_view() -> None:
    start = turned(0.7, (1, 2, 3))
    ahead = start.copy()
    ahead[:3, 3] += 2 * start[:3, 2]
    view = poses.viewmats(np.stack([start, ahead]))
    np.testing.assert_allclose(view[1, :3, 3], [0, 0, -2], atol=1e-12)


def test_a_common_change_of_world_leaves_views_alone(track) -> None:
    world = turned(1.1, (5, -3, 2))
    np.testing.assert_allclose(poses.viewmats(world @ track), poses.viewmats(track), atol=1e-12)


def test_integers_become_float32_and_float64_is_kept(track) -> None:
    assert poses.invert_se3(np.eye(4, dtype=int)).dtype == np.float32
    assert poses.viewmats(track).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_torch_twin_gives_the_same_views(track, dtype) -> None:
    given = track.astype(dtype)
    found = twin.viewmats(torch.from_numpy(given).expand(2, *given.shape))
    atol = 1e-5 if dtype == np.float32 else 1e-12
    for row in found:
        np.testing.assert_allclose(row.numpy(), poses.viewmats(given), atol=atol)
    assert torch.equal(found[:, 0], torch.eye(4, dtype=found.dtype).expand(2, 4, 4))


def test_the_torch_twin_refuses_half_precision(track) -> None:
    with pytest.raises(TypeError, match="float32 or float64"):
        twin.viewmats(torch.from_numpy(track).to(torch.bfloat16))


def test_latent_rows_follow_the_vae_rule() -> None:
    assert poses.latent_rows(5) == (0, 1, 5, 9, 13)
    assert poses.latent_rows(4, cycle=poses.LTX_CYCLE) == (0, 1, 9, 17)
    assert poses.h3_latent_rows(8) == (0, 1, 5, 9, 13, 17, 18, 22)
    assert poses.latent_rows(0) == ()
