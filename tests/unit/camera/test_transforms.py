"""Translation transforms against a scalar formula and the torch twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from solarwm.camera import torch as twin
from solarwm.camera.transforms import TRANSFORMS, linear, logd4


def views(translations) -> np.ndarray:
    matrices = np.tile(np.eye(4), (len(translations), 1, 1))
    matrices[:, :3, 3] = translations
    return matrices


def test_logd4_scales_each_translation_by_its_own_length() -> None:
    given = views([[0, 0, 0], [3, 4, 0], [0, 0, -1e4], [1e-9, 0, 0]])
    found = logd4(given)
    for before, after in zip(given, found, strict=True):
        length = math.sqrt(sum(value * value for value in before[:3, 3]))
        scale = math.log1p(length) / (4 * length) if length else 0.0
        np.testing.assert_allclose(after[:3, 3], before[:3, 3] * scale, rtol=1e-12)
        assert np.array_equal(after[:3, :3], before[:3, :3])


def test_transforms_leave_their_input_untouched() -> None:
    given = views([[1, 2, 3]])
    kept = given.copy()
    logd4(given)
    linear(given)
    assert np.array_equal(given, kept)


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_torch_twin_gives_the_same_translations(name, dtype) -> None:
    given = views(np.random.default_rng(1).normal(size=(6, 3)) * 10).astype(dtype)
    given[0, :3, 3] = 0
    found = twin.TRANSFORMS[name](torch.from_numpy(given).reshape(2, 3, 4, 4)).reshape(6, 4, 4)
    np.testing.assert_allclose(found.numpy(), TRANSFORMS[name](given), rtol=1e-6, atol=1e-7)


def test_both_twins_know_the_same_names() -> None:
    assert set(TRANSFORMS) == set(twin.TRANSFORMS) == {"linear", "logd4"}
