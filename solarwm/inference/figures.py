"""Figures of one clip against the truth, block by block: similarity, liveliness, picture-wide motion.
Numpy only; what is kept does not grow with the clip.

Shapes: N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import math

import numpy as np

from solarwm.inference.quality import decibels

BLOCK = 32
"""Frames taken together."""
_WINDOW = 8
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


class RunningPsnr:
    """PSNR over frames 1.. of two clips."""

    def __init__(self) -> None:
        self._squares = 0.0
        self._size = 0
        self._begun = False

    def add(self, frames_NYX3: np.ndarray, truth_NYX3: np.ndarray) -> None:
        """The next frames of both."""
        first = 0 if self._begun else 1
        self._begun = True
        for picture, true in zip(frames_NYX3[first:], truth_NYX3[first:], strict=True):
            difference = picture.astype(np.float64) - true
            self._squares += float(np.einsum("yxc,yxc->", difference, difference))
            self._size += picture.size

    def value(self) -> float:
        """Decibels; the cap for clips of one frame."""
        return decibels(self._squares / max(1, self._size))


class ClipFigures:
    """`change`, the mean step between neighbouring frames; against the truth, as far as it reaches,
    `psnr`, `ssim`, `change_ratio` (1 = as lively as the truth) and `motion_error`, the mean distance in
    pixels between its picture-wide motion and the truth's."""

    def __init__(self) -> None:
        self._psnr = RunningPsnr()
        self._own, self._true = _Change(), _Change()
        self._alike: list[float] = []
        self._apart: list[float] = []
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self._has_truth = False

    def add(self, frames_NYX3: np.ndarray, truth_NYX3: np.ndarray | None = None) -> None:
        """The next frames, and those of the truth that there are; blocks of `BLOCK` are handy."""
        self._own.add(frames_NYX3)
        if truth_NYX3 is None or not len(truth_NYX3):
            return
        count = min(len(frames_NYX3), len(truth_NYX3))
        frames, truth = frames_NYX3[:count], truth_NYX3[:count]
        self._true.add(truth)
        self._psnr.add(frames, truth)
        first = 0 if self._has_truth else 1
        self._has_truth = True
        self._alike += [ssim(frames[i : i + 1], truth[i : i + 1]) for i in range(first, count)]
        if self._last is not None:
            frames = np.concatenate([self._last[0], frames])
            truth = np.concatenate([self._last[1], truth])
        if len(frames) > 1:
            apart = global_motion(frames) - global_motion(truth)
            self._apart += np.linalg.norm(apart, axis=1).tolist()
        self._last = frames[-1:], truth[-1:]

    def table(self) -> dict[str, float]:
        """The figures."""
        figures = {"change": self._own.mean()}
        if self._has_truth:
            figures |= {
                "psnr": self._psnr.value(),
                "ssim": math.fsum(self._alike) / max(1, len(self._alike)),
                "change_ratio": figures["change"] / max(self._true.mean(), 1e-9),
                "motion_error": math.fsum(self._apart) / max(1, len(self._apart)),
            }
        return figures


class _Change:
    def __init__(self) -> None:
        self._last: np.ndarray | None = None
        self._total = 0.0
        self._size = 0

    def add(self, frames_NYX3: np.ndarray) -> None:
        values = frames_NYX3.astype(np.float32)
        if self._last is not None:
            values = np.concatenate([self._last, values])
        steps = np.abs(np.diff(values, axis=0))
        self._total += float(steps.sum(dtype=np.float64))
        self._size += steps.size
        self._last = values[-1:]

    def mean(self) -> float:
        return self._total / max(1, self._size)


def ssim(frames_NYX3: np.ndarray, reference_NYX3: np.ndarray) -> float:
    """Mean structural similarity of grey pictures over windows of 8 x 8 (Wang et al. 2004, uniform
    windows); 1 for equal clips."""
    values = []
    for one, two in zip(_grey(frames_NYX3), _grey(reference_NYX3), strict=True):
        mean_one, mean_two = _box(one), _box(two)
        spread_one = _box(one * one) - mean_one**2
        spread_two = _box(two * two) - mean_two**2
        shared = _box(one * two) - mean_one * mean_two
        above = (2 * mean_one * mean_two + _C1) * (2 * shared + _C2)
        below = (mean_one**2 + mean_two**2 + _C1) * (spread_one + spread_two + _C2)
        values.append(float((above / below).mean()))
    return math.fsum(values) / len(values)


def global_motion(frames_NYX3: np.ndarray) -> np.ndarray:
    """How the picture as a whole moves from frame to frame, in whole pixels [N-1,2] (down, right), by
    phase correlation."""
    grey = _grey(frames_NYX3)
    grey = (grey - grey.mean(axis=(1, 2), keepdims=True)) * _taper(grey.shape[1:])
    spectra = np.fft.rfft2(grey)
    cross = spectra[1:] * np.conj(spectra[:-1])
    surface = np.fft.irfft2(cross / np.maximum(np.abs(cross), 1e-9), s=grey.shape[1:])
    height, width = grey.shape[1:]
    peak = surface.reshape(len(surface), -1).argmax(axis=1)
    down, right = np.divmod(peak, width)
    down = np.where(down > height // 2, down - height, down)
    right = np.where(right > width // 2, right - width, right)
    return np.stack([down, right], axis=1).astype(np.float64)


def _grey(frames_NYX3: np.ndarray) -> np.ndarray:
    return frames_NYX3.astype(np.float64) @ np.array([0.299, 0.587, 0.114])


def _taper(size: tuple[int, ...]) -> np.ndarray:
    return np.outer(np.hanning(size[0] + 2)[1:-1], np.hanning(size[1] + 2)[1:-1])


def _box(picture_YX: np.ndarray) -> np.ndarray:
    """Means over every window of 8 x 8."""
    total = np.pad(picture_YX.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    n = _WINDOW
    area = total[n:, n:] - total[:-n, n:] - total[n:, :-n] + total[:-n, :-n]
    return area / n**2
