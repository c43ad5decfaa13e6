"""The figures that show camera control, each beside what the documentation asks of the long
profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solarwm.reports.facts import lookup

BLIND = ("blur_4", "blur_8", "blur_16", "mean_latent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One figure: what it says, its value (None where it was not measured) and the least it should
    be."""

    name: str
    meaning: str
    value: float | None
    least: float
    unit: str = "dB"

    @property
    def met(self) -> bool | None:
        """Whether the figure is reached; None where it was not measured."""
        return None if self.value is None else self.value >= self.least


def demands(quality: Mapping[str, Any]) -> tuple[Demand, ...]:
    """Every demand with its figure from a quality summary."""
    right = quality.get("right")
    truth = _pass(quality, right, "psnr_truth")
    rebuilt = _pass(quality, right, "psnr_reconstruction")
    static = _base(quality, "static", "truth")
    static_rebuilt = _base(quality, "static", "reconstruction")
    blind = [
        value for name in BLIND if (value := _base(quality, name, "reconstruction")) is not None
    ]
    own, wrong = lookup(quality, ("flow_loss", "source")), lookup(quality, ("flow_loss", "inverse"))
    vae = _base(quality, "vae", "truth")
    return (
        Demand(
            name="right camera over static",
            meaning="against rendered truth, over repeating the first frame",
            value=_minus(truth, static),
            least=1.5,
        ),
        Demand(
            name="inverse camera below right",
            meaning="against rendered truth, same weights driven backwards",
            value=_loss(quality, "inverse", "psnr_truth"),
            least=0.5,
        ),
        Demand(
            name="mirrored camera below right",
            meaning="against rendered truth, on clips whose mirror differs",
            value=_loss(quality, "mirror", "psnr_truth"),
            least=0.5,
        ),
        Demand(
            name="frozen camera below right",
            meaning="against rendered truth, camera never moves",
            value=_loss(quality, "frozen", "psnr_truth"),
            least=0.5,
        ),
        Demand(
            name="right camera over static, reconstructed",
            meaning="against the truth as the VAE shows it",
            value=_minus(rebuilt, static_rebuilt),
            least=3.0,
        ),
        Demand(
            name="inverse camera below right, reconstructed",
            meaning="against the truth as the VAE shows it",
            value=_loss(quality, "inverse", "psnr_reconstruction"),
            least=2.0,
        ),
        Demand(
            name="right camera over the best camera-blind picture",
            meaning="reconstructed truth; blurred first frames and the mean latent",
            value=_minus(rebuilt, max(blind, default=None)),
            least=2.0,
        ),
        Demand(
            name="flow loss, inverse over right",
            meaning="same noise and times, held-out clips",
            value=None if own is None or wrong is None or own <= 0 else 100.0 * (wrong / own - 1.0),
            least=20.0,
            unit="%",
        ),
        Demand(
            name="VAE over static",
            meaning="the ceiling of every figure against rendered truth",
            value=_minus(vae, static),
            least=5.0,
        ),
    )


def _pass(quality: Mapping[str, Any], name: object, figure: str) -> float | None:
    return lookup(quality, ("passes", str(name), figure))


def _base(quality: Mapping[str, Any], name: str, figure: str) -> float | None:
    return lookup(quality, ("baselines", name, figure))


def _loss(quality: Mapping[str, Any], camera: str, figure: str) -> float | None:
    for entry in quality.get("passes", {}).values():
        if entry.get("camera") == camera:
            return lookup(entry, ("loss", figure))
    return None


def _minus(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other
