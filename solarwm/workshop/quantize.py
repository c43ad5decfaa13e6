"""Weights of linear layers in eight bits: what is written, how it is read again, what it costs.

`int8-block128`: one scale a block of 128 x 128, symmetric; q = round(x 128 / amax), scale = amax / 128, the
positive extreme saturates at 127. Keys `int8_weight` [out, in], `scale` fp32 [ceil(out/128), ceil(in/128)], as
other tools of this field write them. `int8-channel`: one scale an output channel, q = round(x 127 / amax).
`fp8-e4m3`: one scale a tensor, 448 the largest number.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solarwm.backbones.quantized import BLOCK, KEY, restored
from solarwm.errors.types import SolarError
from solarwm.workshop.tensors import TensorFacts, Tensors

SCHEMES = ("int8-block128", "int8-channel", "fp8-e4m3")
SKIP = ("*proj_l*",)
LEAST = 1e-8
"""Smallest largest-number of a block: a block of zeros has a scale too."""
FP8_MOST = 448.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """The tensors to write, the note for the file, and the error of every layer."""

    tensors: Tensors
    metadata: dict[str, str]
    layers: list[dict[str, Any]]


def quantize(
    source: Tensors,
    *,
    scheme: str,
    within: str = "blocks.",
    skip: Sequence[str] = SKIP,
    attention: str = "full",
    device: torch.device | str = "cpu",
) -> Quantized:
    """All two-dimensional weights below `within`, but those `skip` names by pattern.

    Raises `quantize.nothing` (exit 3) when no layer is left, and for weights that are not finite.
    """
    chosen = {
        name.removesuffix(".weight"): name
        for name, facts in source.facts.items()
        if name.endswith(".weight")
        and len(facts.shape) == 2
        and facts.dtype.is_floating_point
        and (name.startswith(within) or f".{within}" in name)
        and not any(fnmatch.fnmatch(name, pattern) for pattern in skip)
    }
    if not chosen:
        raise SolarError(
            "quantize.nothing",
            "no layer of the file can be quantised",
            where=str(source.path),
            why=f"none of {len(source.facts)} tensors is a matrix `...weight` below {within!r}",
            fixes=["--within '' looks at the whole file", "--skip NONE takes every layer"],
        )
    kept: dict[str, tuple[Tensor, Tensor]] = {}
    layers: list[dict[str, Any]] = []
    facts: dict[str, TensorFacts] = {}
    renamed: dict[str, str] = {}
    for name, held in source.facts.items():
        layer = name.removesuffix(".weight")
        if chosen.get(layer) != name:
            facts[name] = held
            continue
        value = source.read(name).to(device).float()
        if not bool(torch.isfinite(value).all()):
            raise SolarError(
                "weights.nonfinite",
                f"{name} of {source.path.name} holds numbers that are not finite",
                where=str(source.path),
            )
        numbers, scale = quantized(value, scheme)
        layers.append({"layer": layer, **errors(value, restored(numbers, scale, scheme))})
        kept[layer] = (numbers.cpu(), scale.cpu())
        for key, tensor in zip(keys(scheme), kept[layer], strict=True):
            facts[f"{layer}.{key}"] = TensorFacts(shape=tuple(tensor.shape), dtype=tensor.dtype)
            renamed[f"{layer}.{key}"] = layer

    def read(name: str) -> Tensor:
        if name not in renamed:
            return source.read(name)
        return kept[renamed[name]][name.endswith(".scale")]

    note = {
        "scheme": scheme,
        "within": within,
        "skip": list(skip),
        "attention": attention,
        "dtypes": {layer: str(source.facts[name].dtype)[6:] for layer, name in chosen.items()},
    }
    return Quantized(
        tensors=Tensors(path=source.path, kind="quantized", facts=facts, read=read),
        metadata={KEY: json.dumps(note, sort_keys=True)},
        layers=layers,
    )


def keys(scheme: str) -> tuple[str, str]:
    """The last parts of the names of numbers and scales."""
    return ("int8_weight" if scheme.startswith("int8") else "fp8_weight", "scale")


def quantized(weight: Tensor, scheme: str) -> tuple[Tensor, Tensor]:
    """(numbers, scales) of a matrix [out, in], fp32."""
    if scheme == "int8-block128":
        rows, columns = weight.shape
        padded = torch.nn.functional.pad(weight, (0, -columns % BLOCK, 0, -rows % BLOCK))
        blocks = padded.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
        most = blocks.abs().amax(dim=(1, 3)).clamp(min=LEAST)
        numbers = (blocks * (128.0 / most)[:, None, :, None]).round().clamp(-128, 127)
        whole = numbers.flatten(2, 3).flatten(0, 1)[:rows, :columns]
        return whole.to(torch.int8).contiguous(), most / 128.0
    if scheme == "int8-channel":
        most = weight.abs().amax(dim=1).clamp(min=LEAST)
        numbers = (weight * (127.0 / most)[:, None]).round().clamp(-127, 127)
        return numbers.to(torch.int8), most / 127.0
    most = weight.abs().max().clamp(min=LEAST)
    numbers = (weight * (FP8_MOST / most)).clamp(-FP8_MOST, FP8_MOST)
    return numbers.to(torch.float8_e4m3fn), (most / FP8_MOST).reshape(1)


def errors(weight: Tensor, again: Tensor) -> dict[str, float]:
    """Largest and mean absolute error of a layer, and its size relative to the weights (L2)."""
    difference = (again - weight).abs()
    return {
        "max": float(difference.max()),
        "mean": float(difference.mean()),
        "relative": float(difference.norm() / weight.norm().clamp(min=1e-30)),
    }
