from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from solarwm.synthetic.clips import plan_clip
from solarwm.synthetic.paths import (
    CLEARANCE_M,
    PATH_KINDS,
    CameraPath,
    draw_path,
    generator,
    wasd_path,
)
from solarwm.synthetic.scene import the_room


@pytest.fixture(scope="module")
def paths() -> list[CameraPath]:
    scene = the_room()
    return [draw_path(scene, generator(11, "train", i), frames=33) for i in range(200)]


def test_no_path_comes_too_close(paths: list[CameraPath]) -> None:
    scene = the_room()
    closest = min(scene.clearance(path.c2w[:, :3, 3]).min() for path in paths)
    assert closest >= CLEARANCE_M - 1e-6
    for index in range(40):
        clip = plan_clip("random", seed=2, split="train", index=index, frames=17)
        assert clip.scene.clearance(clip.path.c2w[:, :3, 3]).min() >= CLEARANCE_M - 1e-6


def test_every_pose_is_rigid(paths: list[CameraPath]) -> None:
    c2w = np.concatenate([path.c2w for path in paths]).astype(np.float64)
    rotation = c2w[:, :3, :3]
    assert c2w.shape[1:] == (4, 4)
    assert paths[0].c2w.dtype == np.float32
    assert np.abs(rotation @ rotation.transpose(0, 2, 1) - np.eye(3)).max() < 1e-6
    assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-6)
    assert (c2w[:, 3] == [0, 0, 0, 1]).all()


def test_rejection_does_not_weed_out_a_kind(paths: list[CameraPath]) -> None:
    counts = [sum(path.kind == kind for path in paths) for kind in PATH_KINDS]
    assert min(counts) > 0.5 * len(paths) / len(PATH_KINDS)


def test_paths_start_near_the_spawn_and_move(paths: list[CameraPath]) -> None:
    spawn = the_room().spawn
    for path in paths:
        away = path.c2w[0, [0, 2], 3] - np.array(spawn.position)[[0, 2]]
        assert np.hypot(*away) <= spawn.jitter_m + 0.05
        assert np.abs(path.c2w[-1] - path.c2w[0]).max() > 0.02


@pytest.mark.parametrize(
    ("keys", "direction"),
    [("W", (0.0, 1.0)), ("S", (0.0, -1.0)), ("A", (-1.0, 0.0)), ("D", (1.0, 0.0))],
)
def test_each_key_walks_its_way(keys: str, direction: tuple[float, float]) -> None:
    path = wasd_path(keys, position=(0.0, -1.5, 0.0), yaw=0.0, step_m=0.5, frames=9)
    assert path.c2w[-1, [0, 2], 3] == pytest.approx(np.array(direction) * 0.5, abs=1e-6)
    assert keys in path.motion


@pytest.mark.parametrize("keys", ["", "WX"])
def test_other_keys_are_refused(keys: str) -> None:
    with pytest.raises(ValueError, match="WASD"):
        wasd_path(keys, position=(0.0, -1.5, 0.0), yaw=0.0, step_m=0.5, frames=9)


def test_the_stream_depends_on_seed_purpose_and_index() -> None:
    keys = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert generator(0, "a", 0).random() == generator(0, "a", 0).random()


def test_a_clip_is_the_same_every_time() -> None:
    one, two = (plan_clip("random", seed=9, split="test", index=3, frames=9) for _ in range(2))
    assert np.array_equal(one.path.c2w, two.path.c2w)
    assert one.scene == two.scene
    assert one.caption == two.caption


def test_captions_name_objects_and_the_movement() -> None:
    words = {
        "dolly": "dollies",
        "pan": "pans",
        "truck": "trucks",
        "orbit": "orbits",
        "walk": "walks forward",
        "wasd": "keys",
    }
    names = {thing.name for thing in (*the_room().boxes, *the_room().pillars)}
    for index in range(30):
        clip = plan_clip("room", seed=0, split="train", index=index, frames=9)
        assert words[clip.path.kind] in clip.caption
        assert any(name in clip.caption for name in names)


def test_an_unknown_scene_is_refused() -> None:
    with pytest.raises(ValueError, match="scene must be one of"):
        plan_clip("moon", seed=0, split="train", index=0, frames=9)


def test_planning_needs_neither_video_nor_torch() -> None:
    code = (
        "import sys, solarwm.synthetic.clips, solarwm.synthetic.writer;"
        "print(sorted({'av', 'torch'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
