"""The one time convention of the package and its conversion at a backbone's edge.

sigma in [0, 1] is the noise level: x_sigma = (1 - sigma) x0 + sigma eps, canonical velocity
v = dx/dsigma = eps - x0. A backbone may embed another time and predict another sign; only its
`TimeCoordinate` knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

Number = TypeVar("Number", float, Tensor)


def shift(u: Number, k: float) -> Number:
    """S_k(u) = k u / (1 + (k - 1) u), in the type of `u`; k = 1 gives `u` itself.

    Raises `ValueError` for k that is not a positive finite number.
    """
    if not (math.isfinite(k) and k > 0):
        raise ValueError(f"a shift must be positive and finite, not {k}")
    if k == 1:
        return u
    return k * u / (1 + (k - 1) * u)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCoordinate:
    """How one family writes the noise level and the velocity.

    `reverse` families run time towards the data (t = scale (1 - sigma)) and predict x0 - eps.
    """

    scale: float
    reverse: bool = False

    @classmethod
    def named(cls, convention: str, *, scale: float) -> TimeCoordinate:
        """The coordinate of a `BackboneSpec.time_convention` (`sigma` or `reverse`)."""
        if convention not in ("sigma", "reverse"):
            raise ValueError(f"unknown time convention {convention!r}")
        return cls(scale=scale, reverse=convention == "reverse")

    @property
    def clean_native(self) -> float:
        """The native time of a clean latent."""
        return self.scale if self.reverse else 0.0

    def to_native(self, sigma: Number) -> Number:
        """The time the model embeds, of noise level `sigma`."""
        return self.scale * (1 - sigma) if self.reverse else self.scale * sigma

    def from_native(self, native: Number) -> Number:
        """The noise level of a native time."""
        return 1 - native / self.scale if self.reverse else native / self.scale

    def velocity_from_model(self, prediction: Tensor) -> Tensor:
        """Canonical velocity eps - x0 of what the model predicts."""
        return -prediction if self.reverse else prediction

    def model_from_velocity(self, velocity: Tensor) -> Tensor:
        """What the model should predict for a canonical velocity."""
        return -velocity if self.reverse else velocity
