"""Trajectories of held keys: grammar, lengths, and where the camera ends."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.camera.guards import track_fault
from solarwm.camera.motion import describe_motion
from solarwm.camera.trajectory import Held, parse_trajectory, trajectory_track


def _track(text: str) -> np.ndarray:
    return trajectory_track(parse_trajectory(text), frames_per_step=4)


def test_steps_are_keys_and_how_long_they_are_held() -> None:
    assert parse_trajectory("w*19, J*7,wl,.*2") == (
        Held(keys="w", steps=19),
        Held(keys="j", steps=7),
        Held(keys="wl", steps=1),
        Held(keys=".", steps=2),
    )


@pytest.mark.parametrize("text", ["", "w*", "w*0", "x*3", "w*3,", "ww", "w 3", "w*-1", "w*9999999"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"part|steps"):
        parse_trajectory(text)


def test_every_key_goes_where_it_says() -> None:
    for keys, axis, sign in (("w", 2, 1), ("s", 2, -1), ("a", 0, -1), ("d", 0, 1)):
        track = _track(f"{keys}*5")
        assert track.shape == (21, 4, 4)
        expected = np.zeros(3)
        expected[axis] = sign * 5 * 0.08
        np.testing.assert_allclose(track[-1, :3, 3], expected, atol=1e-12)
    words = {"j": "turns left 15", "l": "turns right 15", "i": "tilts up 15", "k": "tilts down 15"}
    for keys, said in words.items():
        assert said in describe_motion(_track(f"{keys}*5"))


def test_walking_while_turning_follows_an_arc_of_known_radius() -> None:
    track = trajectory_track(parse_trajectory("wl*30"), frames_per_step=400)
    radius = 0.08 / np.radians(3.0)
    centre = np.array([radius, 0.0, 0.0])
    distance = np.linalg.norm(track[:, :3, 3] - centre, axis=1)
    np.testing.assert_allclose(distance, radius, rtol=1e-3)
    np.testing.assert_allclose(track[-1, :3, 2], (1.0, 0.0, 0.0), atol=1e-9)


def test_every_track_is_rigid_and_starts_at_the_identity() -> None:
    track = _track("wi*40,dk*60,sjk*9,.*3")
    assert track_fault(track) is None
    assert (track[0] == np.eye(4)).all()
    assert (track[-1] == track[-13]).all()
