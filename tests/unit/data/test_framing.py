"""Cover resize and centre crop, with torch's bilinear as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solarwm.data.framing import cover_wan, framed, framed_h3, framed_ltx, stretched_h3


@pytest.mark.parametrize(
    ("source", "canvas"),
    [((32, 48), (64, 96)), ((50, 70), (64, 96)), ((97, 101), (64, 96)), ((64, 200), (64, 96))],
)
def test_resize_equals_bilinear_without_antialias_then_a_centre_crop(source, canvas) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, *source, 3), dtype=np.uint8)
    cover = cover_wan(*source, *canvas)
    size = (cover.resized_height, cover.resized_width)
    whole = torch.nn.functional.interpolate(
        torch.from_numpy(pixels).permute(0, 3, 1, 2).double(),
        size=size,
        mode="bilinear",
        align_corners=False,
        antialias=False,
    ).permute(0, 2, 3, 1)
    expected = whole[
        :, cover.top : cover.top + canvas[0], cover.left : cover.left + canvas[1]
    ].numpy()
    found = framed(pixels, *canvas)
    assert found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 0.5 + 1e-2


def test_equal_size_is_left_untouched() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
    assert np.array_equal(framed(pixels, 64, 96), pixels)


def test_a_crop_without_resize_keeps_the_centre() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (2, 64, 100, 3), dtype=np.uint8)
    assert np.array_equal(framed(pixels, 64, 96), pixels[:, :, 2:98])


@pytest.mark.parametrize("source", [(48, 100), (90, 64), (64, 96)])
def test_ltx_and_h3_frames_cover_the_canvas_and_keep_the_centre(source) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (2, *source, 3), dtype=np.uint8)
    pixels[1] = 77
    bicubic, lanczos = framed_ltx(pixels, 64, 96), framed_h3(pixels, 64, 96)
    assert (bicubic.shape, bicubic.dtype) == ((2, 64, 96, 3), np.float32)
    assert (lanczos.shape, lanczos.dtype) == ((2, 64, 96, 3), np.uint8)
    np.testing.assert_allclose(bicubic[1], 77 / 255, atol=1e-6)
    assert (lanczos[1] == 77).all()
    # A ramp that is symmetric about the centre stays so, whatever is cut off.
    ramp = np.abs(np.linspace(-1, 1, source[1]))[None, :, None] * np.full((source[0], 1, 3), 255.0)
    picture = ramp.round().astype(np.uint8)[None]
    for found in (framed_ltx(picture, 64, 96) * 255, framed_h3(picture, 64, 96).astype(float)):
        assert np.abs(found - found[:, :, ::-1]).max() <= 8.0


def test_a_stretch_keeps_the_corners_that_a_cover_crops() -> None:
    pixels = np.zeros((1, 64, 192, 3), np.uint8)
    pixels[:, :, :48] = 200
    assert (stretched_h3(pixels, 64, 96)[0, :, :20] == 200).all()
    assert not (framed_h3(pixels, 64, 96)[0, :, 10:] == 200).any()


def test_equal_size_is_left_untouched_by_lanczos() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
    assert np.array_equal(framed_h3(pixels, 64, 96), pixels)
    assert np.allclose(framed_ltx(pixels, 64, 96) * 255, pixels, atol=1e-3)
