"""A low-rank adapter put into its base: `W + (alpha / rank) B A`, fp32, back in the dtype of the base."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from solarwm.errors.types import SolarError
from solarwm.workshop.merge import Merged
from solarwm.workshop.tensors import Tensors

_PAIRS = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+)\.lora_"
    r"(?P<half>A|B|down|up)(?:\.(?!weight$)[^.]+)?(?:\.weight)?\Z"
)
_ALPHA = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.alpha\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The two factors of one module, by their names in the adapter file."""

    down: str
    up: str
    scale: float


def merge_adapter(
    base: Tensors, adapter: Tensors, *, alpha: float | None = None, weight: float = 1.0
) -> Merged:
    """The base with the adapter in it. `alpha` stands in for what the adapter says (its own `alpha`
    tensors, or `lora_alpha` of the `adapter_config.json` beside it; without either alpha = rank).

    Raises `merge.refused` (exit 3): keys that are no factors, half pairs, modules the base lacks, other
    shapes, nothing to merge; `merge.weight` (exit 2).
    """
    if not math.isfinite(weight) or (alpha is not None and not math.isfinite(alpha)):
        raise SolarError("merge.weight", "weight and alpha must be finite", where="--w, --alpha")
    pairs = low_rank(adapter, alpha=alpha)
    targets: dict[str, LowRank] = {}
    faults: list[str] = []
    for module, pair in pairs.items():
        name = f"{module}.weight"
        shape = (adapter.facts[pair.up].shape[0], adapter.facts[pair.down].shape[1])
        if name not in base.facts:
            faults.append(f"{name} is not in the base")
        elif base.facts[name].shape != shape:
            faults.append(f"{name} is {list(base.facts[name].shape)}, the adapter {list(shape)}")
        else:
            targets[name] = pair
    if faults:
        raise SolarError(
            "merge.refused",
            f"{len(faults)} of {len(pairs)} modules of the adapter do not fit the base",
            where=str(adapter.path),
            why="; ".join(faults[:5]),
        )

    def read(name: str) -> Tensor:
        value = base.read(name)
        if name not in targets:
            return value
        return (value.float() + weight * product(adapter.read, targets[name])).to(value.dtype)

    linears = sum(len(f.shape) == 2 and n.endswith(".weight") for n, f in base.facts.items())
    return Merged(
        tensors=Tensors(path=base.path, kind="merge", facts=base.facts, read=read),
        report={
            "rule": "base + w (alpha / rank) B A",
            "w": weight,
            "modules": len(targets),
            "two_dimensional_weights": linears,
            "scales": sorted({pair.scale for pair in targets.values()}),
            "unmerge_error": unmerge_error(base, adapter, targets, read, weight),
        },
    )


def low_rank(adapter: Tensors, *, alpha: float | None = None) -> dict[str, LowRank]:
    """The pairs of factors by module. Raises `merge.refused` (exit 3)."""
    halves: dict[str, dict[str, str]] = {}
    alphas: dict[str, float] = {}
    strangers = []
    for name in adapter.facts:
        if match := _PAIRS.match(name):
            half = {"A": "down", "B": "up"}.get(match["half"], match["half"])
            halves.setdefault(match["module"], {})[half] = name
        elif match := _ALPHA.match(name):
            alphas[match["module"]] = float(adapter.read(name))
        else:
            strangers.append(name)
    halved = [module for module, found in halves.items() if len(found) < 2]
    if strangers or halved or not halves:
        told = [f"{name} is no factor" for name in strangers[:3]]
        told += [f"{module} has one factor only" for module in halved[:3]]
        raise SolarError(
            "merge.refused",
            "the file is no adapter that can be merged",
            where=str(adapter.path),
            why="; ".join(told) or "it has no lora_A and lora_B",
        )
    declared = alpha if alpha is not None else _declared(adapter.path)
    found = {}
    for module, names in halves.items():
        rank = adapter.facts[names["down"]].shape[0]
        own = alphas.get(module) if alpha is None else None
        scale = (own if own is not None else declared if declared is not None else rank) / rank
        found[module] = LowRank(down=names["down"], up=names["up"], scale=scale)
    return found


def product(read: Callable[[str], Tensor], pair: LowRank) -> Tensor:
    """(alpha / rank) B A, fp32."""
    return pair.scale * (read(pair.up).float() @ read(pair.down).float())


def unmerge_error(
    base: Tensors,
    adapter: Tensors,
    targets: dict[str, LowRank],
    read: Callable[[str], Tensor],
    weight: float,
) -> float:
    """The largest difference, over all modules, of what taking the adapter out again leaves from the
    base, in units of the largest number of that tensor."""
    worst = 0.0
    for name, pair in targets.items():
        value = base.read(name).float()
        left = read(name).float() - weight * product(adapter.read, pair)
        scale = max(float(value.abs().max()), torch.finfo(torch.float32).tiny)
        worst = max(worst, float((left - value).abs().max()) / scale)
    return worst


def _declared(path: Path) -> float | None:
    place = (path if path.is_dir() else path.parent) / "adapter_config.json"
    try:
        value = json.loads(place.read_bytes()).get("lora_alpha")
    except (OSError, ValueError, AttributeError):
        return None
    return float(value) if isinstance(value, (int, float)) else None
