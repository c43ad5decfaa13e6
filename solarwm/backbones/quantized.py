"""Weights of a quantised file as floats again; what is needed for it stands in the file itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

KEY = "solarwm.quantization"
"""Key of the note in a safetensors header."""
BLOCK = 128
_NUMBERS = ("int8_weight", "fp8_weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the layers of a file are kept."""

    scheme: str
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    """What each layer was before."""

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Quantization | None:
        """The note of a file; None where there is none. Raises `ValueError` for a broken one."""
        if KEY not in metadata:
            return None
        note: dict[str, Any] = json.loads(metadata[KEY])
        return cls(scheme=str(note["scheme"]), dtypes=dict(note["dtypes"]))

    def layer(self, name: str) -> str | None:
        """The layer whose numbers `name` is, or None."""
        layer, _, last = name.rpartition(".")
        return layer if last in _NUMBERS and layer in self.dtypes else None

    def is_scale(self, name: str) -> bool:
        """Whether `name` holds the scales of a layer."""
        layer, _, last = name.rpartition(".")
        return last == "scale" and layer in self.dtypes

    def weight(self, layer: str, numbers: Tensor, scale: Tensor) -> Tensor:
        """The weight of a layer in the dtype it had."""
        return restored(numbers, scale, self.scheme).to(getattr(torch, self.dtypes[layer]))


def restored(numbers: Tensor, scale: Tensor, scheme: str) -> Tensor:
    """The matrix [out, in] in fp32."""
    values = numbers.float()
    if scheme == "int8-block128":
        rows, columns = values.shape
        whole = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return values * whole[:rows, :columns]
    return values * (scale[:, None] if scheme == "int8-channel" else scale)
