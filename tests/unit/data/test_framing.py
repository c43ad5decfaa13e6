"""Cover resize and centre crop, with torch's bilinear as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solarwm.data.framing import cover_wan, framed


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
