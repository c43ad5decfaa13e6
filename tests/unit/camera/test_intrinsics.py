"""Lenses through resize and crop: a point of the scene must land on the same picture content."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.camera.intrinsics import as_focal_centre, fixed_intrinsics, matrix, through_crop


def test_the_fixed_lens_has_square_pixels_at_16_to_9() -> None:
    lens = fixed_intrinsics()
    assert lens.dtype == np.float32
    assert lens[0, 0] * 1920 == pytest.approx(lens[1, 1] * 1080)
    assert lens[0, 2] == lens[1, 2] == 0.5


def test_a_projected_point_follows_the_crop() -> None:
    source, resized, corner, canvas = (720, 1280), (486, 864), (3, 0), (480, 864)
    pixels = np.array([[900.0, 910.0, 640.0, 350.0]])
    fx, fy, cx, cy = through_crop(
        pixels, source=source, resized=resized, corner=corner, canvas=canvas
    )[0]
    x, y = 0.2, -0.1
    column = (900 * x + 640) * 864 / 1280 - 0
    row = (910 * y + 350) * 486 / 720 - 3
    assert fx * x + cx == pytest.approx(column / 864)
    assert fy * y + cy == pytest.approx(row / 480)


def test_normalised_and_pixel_values_mean_the_same() -> None:
    cut = {"source": (100, 200), "resized": (50, 100), "corner": (2, 10), "canvas": (46, 80)}
    normal = through_crop(np.array([[0.5, 1.0, 0.5, 0.5]]), **cut)
    pixels = through_crop(np.array([[100.0, 100.0, 100.0, 50.0]]), **cut)
    np.testing.assert_allclose(normal, pixels)


@pytest.mark.parametrize(
    "stored",
    [
        matrix(5, 6, 7, 8),
        np.stack([matrix(5, 6, 7, 8)] * 3),
        np.array([5, 6, 7, 8]),
        np.array([[5, 6, 7, 8]] * 3),
    ],
)
def test_every_stored_shape_is_read(stored) -> None:
    rows = as_focal_centre(stored)
    assert rows.shape in ((1, 4), (3, 4))
    assert rows[0].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("stored", [np.zeros((2, 2)), np.zeros(5), np.array([0, 1, 0, 0])])
def test_other_shapes_and_dead_lenses_are_refused(stored) -> None:
    with pytest.raises(ValueError, match=r"intrinsics|focal"):
        as_focal_centre(stored)
