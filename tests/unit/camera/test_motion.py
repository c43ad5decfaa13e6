"""Tracks in words: a wrong convention must read wrong."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.camera.motion import describe_motion
from solarwm.camera.poses import invert_se3


def steps(x: float, y: float, z: float) -> np.ndarray:
    track = np.tile(np.eye(4), (5, 1, 1))
    track[:, :3, 3] = np.linspace(0, 1, 5)[:, None] * np.array([x, y, z])
    return track


@pytest.mark.parametrize(
    ("track", "words"),
    [
        (steps(0, 0, 1.2), "moves forward 1.2"),
        (steps(0, 0, -1.2), "moves back 1.2"),
        (steps(0.5, 0, 1), "moves right 0.5, moves forward 1"),
        (steps(0, -2, 0), "moves up 2"),
        (steps(0, 0, 0), "stands still"),
    ],
)
def test_a_move_is_named_in_the_axes_of_the_first_camera(track, words) -> None:
    assert describe_motion(track) == words
    turned = np.eye(4)
    turned[:3, :3] = [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]
    turned[:3, 3] = (7, 8, 9)
    assert describe_motion(turned @ track) == words


def test_a_track_read_the_wrong_way_round_goes_the_wrong_way() -> None:
    assert describe_motion(invert_se3(steps(0, 0, 1.2))) == "moves back 1.2"


def test_turns_and_tilts_are_in_degrees() -> None:
    angle = np.radians(30)
    yaw, pitch = np.eye(4), np.eye(4)
    yaw[0, 0] = yaw[2, 2] = pitch[1, 1] = pitch[2, 2] = np.cos(angle)
    yaw[0, 2], yaw[2, 0] = np.sin(angle), -np.sin(angle)
    pitch[1, 2], pitch[2, 1] = -np.sin(angle), np.sin(angle)
    assert describe_motion(np.stack([np.eye(4), yaw])) == "turns right 30 deg"
    assert describe_motion(np.stack([np.eye(4), pitch])) == "tilts up 30 deg"
