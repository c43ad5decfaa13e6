"""Tracks that must not be trained on, each with the frame that is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.camera.guards import audited_frames, audited_latents, magnitude_fault, track_fault


def track(frames: int = 6) -> np.ndarray:
    poses = np.tile(np.eye(4, dtype=np.float32), (frames, 1, 1))
    poses[:, 2, 3] = np.arange(frames) * 0.1
    return poses


def limits(poses, **changes):
    given = {"rows": range(len(poses)), "rate": 16.0}
    given |= {"max_rel_translation": 20.0, "max_camera_abs": 20.0} | changes
    return magnitude_fault(poses, **given)


def test_a_sound_track_passes() -> None:
    assert track_fault(track()) is None
    assert limits(track()) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_none_is_named_with_its_frame(value) -> None:
    poses = track()
    poses[4, 0, 3] = value
    fault = track_fault(poses)
    assert fault is not None
    assert (fault.kind, fault.frame) == ("not-finite", 4)


@pytest.mark.parametrize("distance", [1e4, 1e30])
def test_a_track_too_far_from_the_origin_for_its_precision_is_named(distance: float) -> None:
    poses = track()
    poses[2:, 0, 3] = distance
    fault = track_fault(poses)
    assert fault is not None
    assert (fault.kind, fault.frame) == ("guard", 2)
    assert "rebase" in fault.why


def test_a_transposed_track_is_recognised() -> None:
    fault = track_fault(np.swapaxes(track(), 1, 2))
    assert fault is not None
    assert (fault.kind, fault.frame) == ("not-rigid", 1)
    assert "transposed" in fault.why


def test_a_stretched_rotation_is_refused() -> None:
    poses = track()
    poses[3, :3, :3] *= 1.01
    fault = track_fault(poses)
    assert fault is not None
    assert (fault.kind, fault.frame) == ("not-rigid", 3)


def test_a_mirrored_axis_is_refused() -> None:
    poses = track()
    poses[2, 0, 0] = -1
    fault = track_fault(poses)
    assert fault is not None
    assert (fault.kind, fault.frame) == ("not-rigid", 2)
    assert "determinant -1" in fault.why


@pytest.mark.parametrize(
    "poses",
    [
        np.zeros((0, 4, 4), np.float32),
        np.zeros((5, 3, 4), np.float32),
        np.zeros((4, 4), np.float32),
        np.zeros((5, 4, 4), np.int64),
        np.array(["a"]),
    ],
    ids=["no frames", "3x4", "one pose", "integers", "text"],
)
def test_other_shapes_are_refused(poses) -> None:
    fault = track_fault(poses)
    assert fault is not None
    assert fault.kind == "shape"


def test_a_huge_translation_is_named_with_its_frame_and_size() -> None:
    poses = track()
    poses[5, 0, 3] = 1e3
    assert track_fault(poses) is None
    fault = limits(poses)
    assert fault is not None
    assert (fault.kind, fault.frame) == ("guard", 5)
    assert "1000" in fault.why


def test_only_the_audited_prefix_counts() -> None:
    poses = track(40)
    poses[30, 0, 3] = 1e4
    assert limits(poses, rate=2.0) is None
    assert limits(poses, rate=3.1) is not None
    assert limits(poses, rate=0.0) is not None


def test_only_the_rows_of_latents_count() -> None:
    poses = track(13)
    poses[6, 0, 3] = 1e4
    assert limits(poses, rows=(0, 1, 5, 9)) is None


def test_the_limit_itself_is_allowed_and_none_turns_it_off() -> None:
    poses = track(2)
    poses[1, :3, 3] = (20, 0, 0)
    assert limits(poses) is None
    poses[1, 0, 3] = 21
    assert limits(poses) is not None
    assert limits(poses, max_rel_translation=None, max_camera_abs=None) is None
    fault = limits(poses, max_rel_translation=None)
    assert fault is not None
    assert "entry" in fault.why


def test_where_a_clip_starts_in_the_world_does_not_matter() -> None:
    poses = track()
    poses[:, 0, 3] += 1e4
    assert limits(poses) is None


def test_the_audited_prefix_is_ten_seconds() -> None:
    assert audited_frames(200, 16.0) == 160
    assert audited_frames(81, 12.5) == 81
    assert audited_frames(81, 0.0) == 81
    assert audited_latents((0, 1, 5), 6, 0.01) == 1
