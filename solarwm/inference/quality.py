"""How good a generation is where the truth is known: PSNR against it, against its VAE
reconstruction, and of what a model without a camera could have shown. Plain numpy.

Shapes: N pixel frames, Y X pixel height and width. Frames are uint8 RGB. Frame 0 is given to the
model, so every figure is over frames 1..N-1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

BLUR_SIGMAS = (4, 8, 16)
"""Widths, in pixels, of the blurred first frames."""
CAP_DB = 100.0
"""PSNR given for equal pictures, where the formula has no value."""


def psnr(frames_NYX3: np.ndarray, reference_NYX3: np.ndarray, *, first: int = 1) -> float:
    """PSNR of one clip in dB: 10 log10(255^2 / mean squared difference), frames `first`.. of
    both."""
    frames, reference = frames_NYX3[first:], reference_NYX3[first:]
    if frames.shape != reference.shape or not frames.size:
        raise ValueError(f"clips differ in shape: {frames_NYX3.shape} and {reference_NYX3.shape}")
    total = 0.0
    for picture, truth in zip(frames, reference, strict=True):
        total += _square(picture, truth)
    return decibels(total / frames.size)


def static(picture_YX3: np.ndarray, num_frames: int) -> np.ndarray:
    """A clip that never moves: one picture, `num_frames` times (a view)."""
    return np.broadcast_to(picture_YX3, (num_frames, *picture_YX3.shape))


def blur(picture_YX3: np.ndarray, sigma: float) -> np.ndarray:
    """The picture under a Gaussian of `sigma` pixels, mirrored at its edges, as uint8."""
    rows = _blur_matrix(picture_YX3.shape[0], sigma)
    columns = _blur_matrix(picture_YX3.shape[1], sigma)
    smooth = np.einsum(
        "yv,vwc,xw->yxc", rows, picture_YX3.astype(np.float64), columns, optimize=True
    )
    return np.clip(np.rint(smooth), 0, 255).astype(np.uint8)


def pass_metrics(
    generated_NYX3: np.ndarray, truth_NYX3: np.ndarray, reconstruction_NYX3: np.ndarray
) -> dict[str, float]:
    """PSNR of one generated clip against rendered truth and against the truth as the VAE shows
    it."""
    half = 1 + (len(truth_NYX3) - 1) // 2
    return {
        "psnr_truth": psnr(generated_NYX3, truth_NYX3),
        "psnr_truth_last_half": psnr(generated_NYX3, truth_NYX3, first=half),
        "psnr_reconstruction": psnr(generated_NYX3, reconstruction_NYX3),
    }


class RunningFigures:
    """Figures of a clip of `count` frames against the truth, frame by frame: those of `pass_metrics` and
    of the still first frame that need no reconstruction."""

    def __init__(self, count: int) -> None:
        self._half = 1 + (count - 1) // 2
        self._seen = 0
        self._size = 0
        self._first: np.ndarray | None = None
        self._totals = {"psnr_truth": 0.0, "psnr_truth_last_half": 0.0, "static": 0.0}
        self._counts = dict.fromkeys(self._totals, 0)

    def add(self, picture_YX3: np.ndarray, truth_YX3: np.ndarray) -> None:
        """The next frame of both."""
        if self._first is None:
            self._first = truth_YX3
        if self._seen:
            names = ["psnr_truth", *(["psnr_truth_last_half"] if self._seen >= self._half else [])]
            error = _square(picture_YX3, truth_YX3)
            for name in names:
                self._totals[name] += error
                self._counts[name] += truth_YX3.size
            self._totals["static"] += _square(self._first, truth_YX3)
            self._counts["static"] += truth_YX3.size
        self._seen += 1

    def table(self) -> dict[str, Any]:
        """PSNR by name, and `baselines`; empty for a clip of one frame."""
        found: dict[str, Any] = {
            name: decibels(total / self._counts[name])
            for name, total in self._totals.items()
            if self._counts[name]
        }
        still = found.pop("static", None)
        return found if still is None else {**found, "baselines": {"static": {"truth": still}}}


def baseline_metrics(
    truth_NYX3: np.ndarray,
    reconstruction_NYX3: np.ndarray,
    mean_latent_NYX3: np.ndarray | None = None,
) -> dict[str, dict[str, float]]:
    """PSNR of pictures no model drew, {baseline: {`truth` | `reconstruction`: dB}}.

    `static` repeats the first frame (against the reconstruction: the first reconstructed frame),
    `blur_S` the first frame under a Gaussian of S px, `mean_latent` is the decoded mean over all
    cases' latents, `vae` the reconstruction itself, the ceiling of every figure against truth.
    """
    frames = len(truth_NYX3)
    quarter = max(1, (frames - 1) // 4)
    table = {
        "vae": {
            "truth": psnr(reconstruction_NYX3, truth_NYX3),
            "truth_frame_0": psnr(reconstruction_NYX3[:1], truth_NYX3[:1], first=0),
            "truth_first_quarter": psnr(
                reconstruction_NYX3[: quarter + 1], truth_NYX3[: quarter + 1]
            ),
            "truth_last_quarter": psnr(reconstruction_NYX3, truth_NYX3, first=frames - quarter),
        },
        "static": _against(truth_NYX3, reconstruction_NYX3, lambda picture: picture),
    }
    for sigma in BLUR_SIGMAS:
        table[f"blur_{sigma}"] = _against(
            truth_NYX3, reconstruction_NYX3, lambda picture, sigma=sigma: blur(picture, sigma)
        )
    if mean_latent_NYX3 is not None:
        table["mean_latent"] = {
            "truth": psnr(mean_latent_NYX3, truth_NYX3),
            "reconstruction": psnr(mean_latent_NYX3, reconstruction_NYX3),
        }
    return table


def camera_difference(c2w_N44: np.ndarray, other_N44: np.ndarray) -> dict[str, float]:
    """How far two camera tracks part: the largest rotation in degrees and distance in scene
    units."""
    product = np.einsum("nij,nij->n", c2w_N44[:, :3, :3], other_N44[:, :3, :3])
    cosine = np.clip((product - 1.0) / 2.0, -1.0, 1.0)
    distance = np.linalg.norm(c2w_N44[:, :3, 3] - other_N44[:, :3, 3], axis=1)
    return {
        "rotation_deg": float(np.degrees(np.arccos(cosine)).max()),
        "translation": float(distance.max()),
    }


def differs(difference: Mapping[str, float]) -> bool:
    """Whether a track parts from another enough to be seen (1 degree, or 0.05 scene units)."""
    return difference["rotation_deg"] >= 1.0 or difference["translation"] >= 0.05


def summarise(passes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Means over clips of every figure, from `metrics` blocks per pass name (clips in slot order).

    Every mean of PSNR is a mean of per-clip PSNR. Passes without a known truth are left out.
    `right` names the first pass driven with the clip's own camera; other passes get `loss`, right
    minus theirs over the clips on which their camera parts from the clip's own.
    """
    blocks = {
        name: [metrics for metrics in clips if "psnr_truth" in metrics]
        for name, clips in passes.items()
    }
    blocks = {name: clips for name, clips in blocks.items() if clips}
    right = next((name for name, clips in blocks.items() if clips[0]["camera"] == "source"), None)
    table: dict[str, Any] = {"right": right, "passes": {}, "baselines": {}, "flow_loss": {}}
    for name, clips in blocks.items():
        entry: dict[str, Any] = {
            "camera": clips[0]["camera"],
            "clips": len(clips),
            "solver": clips[0]["solver"],
            "num_inference_steps": clips[0]["num_inference_steps"],
        }
        for figure in ("psnr_truth", "psnr_truth_last_half", "psnr_reconstruction"):
            if all(figure in metrics for metrics in clips):
                entry[figure] = _mean([metrics[figure] for metrics in clips])
        if right is not None and name != right:
            entry["loss"] = _losses(clips, blocks[right])
        table["passes"][name] = entry
    if right is not None:
        with_baselines = [metrics for metrics in blocks[right] if "baselines" in metrics]
        table["baselines"] = _nested_means([metrics["baselines"] for metrics in with_baselines])
        with_flow = [metrics["flow_loss"] for metrics in blocks[right] if "flow_loss" in metrics]
        if with_flow:
            table["flow_loss"] = {
                camera: _mean([clip[camera] for clip in with_flow]) for camera in with_flow[0]
            }
    return table


def _losses(
    clips: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]
) -> dict[str, float | int]:
    by_slot = {metrics["slot"]: metrics for metrics in right}
    pairs = [
        (by_slot[metrics["slot"]], metrics)
        for metrics in clips
        if metrics["slot"] in by_slot and differs(metrics["camera_difference"])
    ]
    result: dict[str, float | int] = {"clips": len(pairs)}
    for figure in ("psnr_truth", "psnr_reconstruction"):
        if pairs and all(figure in metrics for pair in pairs for metrics in pair):
            result[figure] = _mean([own[figure] - other[figure] for own, other in pairs])
    return result


def _against(truth: np.ndarray, reconstruction: np.ndarray, draw: Any) -> dict[str, float]:
    frames = len(truth)
    return {
        "truth": psnr(static(draw(truth[0]), frames), truth),
        "reconstruction": psnr(static(draw(reconstruction[0]), frames), reconstruction),
    }


def _nested_means(tables: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    if not tables:
        return {}
    return {
        name: {figure: _mean([table[name][figure] for table in tables]) for figure in figures}
        for name, figures in tables[0].items()
        if all(name in table for table in tables)
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _square(picture_YX3: np.ndarray, truth_YX3: np.ndarray) -> float:
    difference = picture_YX3.astype(np.float64) - truth_YX3
    return float(np.einsum("yxc,yxc->", difference, difference))


def decibels(mean_square: float) -> float:
    """PSNR of a mean squared difference of 8-bit values, capped where they are equal."""
    if mean_square <= 0.0:
        return CAP_DB
    return min(CAP_DB, 10.0 * math.log10(255.0**2 / mean_square))


def _blur_matrix(size: int, sigma: float) -> np.ndarray:
    radius = math.ceil(4 * sigma)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    matrix = np.zeros((size, size))
    for place in range(size):
        sources = np.mod(place + offsets, 2 * size)
        sources = np.where(sources < size, sources, 2 * size - 1 - sources)
        np.add.at(matrix[place], sources, weights)
    return matrix
