"""`solarwm infer --image ... --print`: the camera in numbers and words, without weights or data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from solarwm.cli.app import run

QUICK = Path(__file__).parents[2] / "configs" / "examples" / "quickstart"


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "first.png"
    Image.new("RGB", (120, 90), (200, 30, 10)).save(path)
    return path


def _print(config, picture, *more):
    words = ["infer", "--config", QUICK / config, "--image", picture, *more, "--print", "--json"]
    return run([str(word) for word in words])


def test_a_causal_model_goes_as_far_as_the_keys_in_whole_chunks(picture, capsys):
    assert _print("infer-stage2.yaml", picture, "--trajectory", "w*19,j*7") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["given_frames"], report["latents"], report["frames"]) == (105, 27, 105)
    assert report["motion"] == "moves forward 1.5, turns left 21 deg"
    assert report["latent_frames"][:3] == [0, 1, 5]
    assert report["c2w"][0] == np.eye(4).tolist()
    assert _print("infer-stage2.yaml", picture, "--trajectory", "w*2") == 0
    assert json.loads(capsys.readouterr().out)["latents"] == 9
    assert _print("infer-stage2.yaml", picture, "--trajectory", "w*9") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["given_frames"], report["latents"], report["frames"]) == (37, 12, 45)
    assert report["c2w"][-1] == report["c2w"][-2]


def test_a_model_of_all_frames_keeps_its_length(picture, capsys):
    assert _print("infer.yaml", picture, "--trajectory", "w*2") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["given_frames"], report["frames"]) == (9, 81)


def test_a_camera_file_of_world_to_camera_matrices_is_inverted(picture, capsys, tmp_path):
    track = np.tile(np.eye(4, dtype=np.float32), (9, 1, 1))
    track[:, 2, 3] = -0.1 * np.arange(9)
    np.savez(tmp_path / "track.npz", w2c=track)
    assert _print("infer.yaml", picture, "--camera", tmp_path / "track.npz") == 0
    assert json.loads(capsys.readouterr().out)["motion"] == "moves forward 0.8"


@pytest.mark.parametrize(
    ("more", "code", "exit_code"),
    [
        (("--trajectory", "w*0"), "inference.trajectory", 2),
        (("--camera", "none.npz"), "camera.unreadable", 3),
        ((), "cli.usage", 2),
    ],
)
def test_what_cannot_be_used_is_named(picture, capsys, more, code, exit_code):
    assert _print("infer-stage2.yaml", picture, *more) == exit_code
    assert json.loads(capsys.readouterr().out)["code"] == code


def test_a_track_that_is_not_rigid_or_leaves_the_limits_is_refused(picture, capsys, tmp_path):
    track = np.tile(np.eye(4), (9, 1, 1))
    track[5, 0, 3] = 30.0
    for code, scale in (("camera.guard", 1.0), ("camera.not-rigid", 2.0)):
        track[:, :3, :3] = scale * np.eye(3)
        np.save(tmp_path / "track.npy", track)
        assert _print("infer.yaml", picture, "--camera", tmp_path / "track.npy") == 3
        assert json.loads(capsys.readouterr().out)["code"] == code


def test_a_file_that_is_no_picture_is_named(tmp_path, capsys):
    (tmp_path / "first.png").write_bytes(b"no picture")
    assert _print("infer.yaml", tmp_path / "first.png", "--trajectory", "w") == 3
    assert json.loads(capsys.readouterr().out)["code"] == "inference.image"
