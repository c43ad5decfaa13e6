from __future__ import annotations

import math

import numpy as np
import pytest

from solarwm.inference import quality


def _clip(frames=9, height=12, width=16, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)


def test_psnr_of_a_constant_offset_has_the_value_of_the_formula():
    truth = np.full((5, 4, 6, 3), 100, dtype=np.uint8)
    assert quality.psnr(truth + 10, truth) == pytest.approx(20 * math.log10(255 / 10))


def test_frame_zero_does_not_count():
    truth = _clip()
    wrong_start = truth.copy()
    wrong_start[0] = 255 - wrong_start[0]
    assert quality.psnr(wrong_start, truth) == quality.CAP_DB
    assert quality.psnr(wrong_start, truth, first=0) < 20


def test_psnr_refuses_clips_of_different_length():
    with pytest.raises(ValueError, match="shape"):
        quality.psnr(_clip(frames=5), _clip(frames=6))


@pytest.mark.parametrize("sigma", quality.BLUR_SIGMAS)
def test_blur_keeps_flat_pictures_and_the_mean(sigma):
    flat = np.full((20, 30, 3), 77, dtype=np.uint8)
    assert (quality.blur(flat, sigma) == flat).all()
    picture = _clip(frames=1, height=64, width=96)[0]
    smooth = quality.blur(picture, sigma)
    assert smooth.astype(float).mean() == pytest.approx(picture.astype(float).mean(), abs=0.5)
    assert smooth.astype(float).std() < picture.astype(float).std() / 4


def test_blur_of_a_point_is_the_gaussian():
    picture = np.zeros((65, 65, 3), dtype=np.uint8)
    picture[32, 32] = 255
    wide = quality.blur(picture, 4)
    expected = 255 / (2 * math.pi * 16)
    assert wide[32, 32, 0] == pytest.approx(expected, abs=0.51)


def test_static_baseline_repeats_the_first_frame():
    truth, rebuilt = _clip(seed=1), _clip(seed=2)
    table = quality.baseline_metrics(truth, rebuilt, mean_latent_NYX3=rebuilt)
    repeated = np.repeat(truth[:1], len(truth), axis=0)
    assert table["static"]["truth"] == quality.psnr(repeated, truth)
    assert table["vae"]["truth"] == quality.psnr(rebuilt, truth)
    assert table["mean_latent"]["reconstruction"] == quality.CAP_DB
    assert set(table) == {"vae", "static", "blur_4", "blur_8", "blur_16", "mean_latent"}


def _turned(degrees):
    track = np.broadcast_to(np.eye(4), (3, 4, 4)).copy()
    angle = math.radians(degrees)
    track[2, :2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    track[2, :3, 3] = [0.0, 3.0, 4.0]
    return track


def test_camera_difference_is_the_largest_angle_and_distance():
    still = np.broadcast_to(np.eye(4), (3, 4, 4))
    difference = quality.camera_difference(still, _turned(30))
    assert difference["rotation_deg"] == pytest.approx(30)
    assert difference["translation"] == pytest.approx(5)
    assert quality.differs(difference)
    assert not quality.differs(quality.camera_difference(still, still))


def _metrics(slot, camera, psnr, *, moved=True):
    return {
        "slot": slot,
        "camera": camera,
        "solver": "euler",
        "num_inference_steps": 10,
        "psnr_truth": psnr,
        "psnr_truth_last_half": psnr - 1,
        "psnr_reconstruction": psnr + 3,
        "camera_difference": {"rotation_deg": 30.0 if moved else 0.0, "translation": 0.0},
    }


def test_the_summary_means_clips_and_compares_only_where_cameras_differ():
    right = [_metrics(0, "source", 17.0), _metrics(1, "source", 19.0)]
    for metrics in right:
        metrics["baselines"] = {"static": {"truth": metrics["psnr_truth"] - 2}}
        metrics["flow_loss"] = {"source": 0.3, "inverse": 0.4}
    mirror = [_metrics(0, "mirror", 16.0), _metrics(1, "mirror", 19.0, moved=False)]
    table = quality.summarise({"right": right, "mirror": mirror, "blind": [{"camera": "source"}]})
    assert table["right"] == "right"
    assert table["passes"]["right"]["psnr_truth"] == 18.0
    assert table["passes"]["mirror"]["loss"] == {
        "clips": 1,
        "psnr_truth": 1.0,
        "psnr_reconstruction": 1.0,
    }
    assert table["baselines"] == {"static": {"truth": 16.0}}
    assert table["flow_loss"] == {"source": 0.3, "inverse": 0.4}
    assert "blind" not in table["passes"]
