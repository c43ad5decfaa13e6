"""Wrong cameras: what each does to known motions."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.camera.variants import VARIANTS, frozen, inverse, mirror, other


def yawed(angle: float) -> np.ndarray:
    pose = np.eye(4)
    pose[0, 0] = pose[2, 2] = np.cos(angle)
    pose[0, 2], pose[2, 0] = np.sin(angle), -np.sin(angle)
    return pose


@pytest.fixture
def start() -> np.ndarray:
    pose = yawed(0.4)
    pose[:3, 3] = (1, 2, 3)
    return pose


def dolly(start: np.ndarray, step: float) -> np.ndarray:
    track = np.tile(start, (5, 1, 1))
    for i in range(5):
        track[i, :3, 3] += i * step * start[:3, 2]
    return track


def pan(start: np.ndarray, step: float) -> np.ndarray:
    return np.stack([start @ yawed(i * step) for i in range(5)])


def test_the_inverse_of_a_dolly_runs_backwards(start) -> None:
    np.testing.assert_allclose(inverse(dolly(start, 0.3)), dolly(start, -0.3), atol=1e-12)


def test_the_inverse_of_a_pan_turns_the_other_way(start) -> None:
    np.testing.assert_allclose(inverse(pan(start, 0.1)), pan(start, -0.1), atol=1e-12)


def test_a_mirror_leaves_a_dolly_and_turns_a_pan(start) -> None:
    np.testing.assert_allclose(mirror(dolly(start, 0.3)), dolly(start, 0.3), atol=1e-12)
    np.testing.assert_allclose(mirror(pan(start, 0.1)), pan(start, -0.1), atol=1e-12)


def test_a_frozen_camera_stays(start) -> None:
    assert np.array_equal(frozen(pan(start, 0.1)), pan(start, 0.0))


def test_another_path_begins_where_this_clip_begins(start) -> None:
    elsewhere = np.eye(4)
    elsewhere[:3, 3] = (9, 9, 9)
    found = other(pan(start, 0.1), dolly(elsewhere, 0.2))
    np.testing.assert_allclose(found, dolly(start, 0.2), atol=1e-12)


def test_another_path_of_another_length_is_refused(start) -> None:
    with pytest.raises(ValueError, match="3 poses"):
        other(pan(start, 0.1), dolly(start, 0.1)[:3])


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_variants_keep_the_first_pose_dtype_and_input(name, start) -> None:
    given = pan(start, 0.1).astype(np.float32)
    kept = given.copy()
    found = VARIANTS[name](given)
    assert found.dtype == np.float32
    assert np.array_equal(found[0], given[0])
    assert np.array_equal(given, kept)
