"""Weights combined: `base + w (target - diff base)`, averages of several files, an adapter into its base.

All sums are in fp32, results in the dtype of the base. One tensor is held in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from solarwm.errors.types import SolarError
from solarwm.workshop.tensors import TensorFacts, Tensors

KEEP_BASE, ERROR, ADD, DROP = "keep-base", "error", "add", "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What becomes of keys that are not the same in all three."""

    on_shape_mismatch: str = KEEP_BASE
    """`keep-base` or `error`."""
    on_missing: str = KEEP_BASE
    """A key of the base that one of the others lacks: `keep-base` or `error`."""
    on_new: str = ADD
    """A key of the target that the base lacks: `add`, `drop` or `error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Every key of the three sources, in the one category it fell into."""

    merged: tuple[str, ...]
    shape_mismatch: tuple[str, ...]
    missing: tuple[str, ...]
    only_target: tuple[str, ...]
    only_diff_base: tuple[str, ...]
    not_tensors: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Counts and names."""
        rows = {name: getattr(self, name) for name in self.__slots__}
        return {name: {"count": len(keys), "keys": list(keys)} for name, keys in rows.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A result that is computed when it is read, and what it is made of."""

    tensors: Tensors
    report: dict[str, Any] = field(default_factory=dict[str, Any])


def merge_difference(
    base: Tensors, diff_base: Tensors, target: Tensors, *, weight: float, policies: Policies
) -> Merged:
    """`base + weight (target - diff_base)` for every key the three share.

    Raises `merge.weight` (exit 2) for a weight that is not finite, `merge.refused` (exit 3) for what a
    policy calls an error and when no key is touched.
    """
    if not math.isfinite(weight):
        raise SolarError("merge.weight", f"the weight must be finite, not {weight}", where="--w")
    found = categories(base, diff_base, target)
    faults = [
        f"{len(keys)} keys {what}, such as {keys[0]} ({flag})"
        for keys, policy, what, flag in (
            (
                found.shape_mismatch,
                policies.on_shape_mismatch,
                "have other shapes",
                "--on-shape-mismatch",
            ),
            (found.missing, policies.on_missing, "are not in all three", "--on-missing"),
            (found.only_target, policies.on_new, "are not in the base", "--on-new"),
        )
        if keys and policy == ERROR
    ]
    added = found.only_target if policies.on_new == ADD else ()
    if not found.merged and not added:
        faults.append("no key is touched: the result would be the base")
    if faults:
        raise SolarError(
            "merge.refused",
            "the weights do not fit together",
            where=str(target.path),
            why="; ".join(faults),
            fixes=["look at their keys: solarwm checkpoint inspect FILE --keys '*'"],
            context=found.plain(),
        )
    merged = set(found.merged)

    def read(name: str) -> Tensor:
        if name not in base.facts:
            return target.read(name)
        value = base.read(name)
        if name not in merged:
            return value
        difference = target.read(name).float() - diff_base.read(name).float()
        return (value.float() + weight * difference).to(value.dtype)

    facts = {**base.facts, **{name: target.facts[name] for name in added}}
    return Merged(
        tensors=_made(base, facts, read),
        report={
            "rule": "base + w (diff_target - diff_base)",
            "w": weight,
            "added": len(added),
            "kept": len(base.facts) - len(merged),
            "categories": found.plain(),
        },
    )


def categories(base: Tensors, diff_base: Tensors, target: Tensors) -> Categories:
    """The category of every key."""
    merged, other_shape, missing = [], [], []
    for name, facts in base.facts.items():
        if name not in diff_base.facts or name not in target.facts:
            missing.append(name)
        elif facts.shape == diff_base.facts[name].shape == target.facts[name].shape:
            merged.append(name)
        else:
            other_shape.append(name)
    return Categories(
        merged=tuple(merged),
        shape_mismatch=tuple(other_shape),
        missing=tuple(missing),
        only_target=tuple(name for name in target.facts if name not in base.facts),
        only_diff_base=tuple(
            name for name in diff_base.facts if name not in base.facts and name not in target.facts
        ),
        not_tensors=tuple(sorted({*base.left_out, *diff_base.left_out, *target.left_out})),
    )


def average(sources: Sequence[Tensors], weights: Sequence[float]) -> Merged:
    """The weighted mean of files with the same keys and shapes; weights are divided by their sum.

    Raises `merge.weight` (exit 2) and `merge.refused` (exit 3).
    """
    total = sum(weights)
    if len(weights) != len(sources) or not math.isfinite(total) or total == 0:
        raise SolarError(
            "merge.weight",
            f"{len(weights)} weights that sum to {total} for {len(sources)} files",
            where="--average-weight",
            fixes=["give one finite weight a file, in their order"],
        )
    first = sources[0]
    for other in sources[1:]:
        differing = sorted(set(first.facts) ^ set(other.facts)) + [
            name
            for name, facts in first.facts.items()
            if name in other.facts and other.facts[name].shape != facts.shape
        ]
        if differing:
            raise SolarError(
                "merge.refused",
                f"{len(differing)} keys differ between the files",
                where=str(other.path),
                why=f"such as {differing[0]}",
            )

    def read(name: str) -> Tensor:
        value = first.read(name)
        if not value.is_floating_point():
            return value
        mean = sum(
            (source.read(name).float() * (weight / total))
            for source, weight in zip(sources, weights, strict=True)
        )
        return torch.as_tensor(mean).to(value.dtype)

    report = {"rule": "weighted mean", "weights": [weight / total for weight in weights]}
    return Merged(tensors=_made(first, first.facts, read), report=report)


def selftest() -> float:
    """The largest difference of `merge_difference` on tiny tensors from the formula worked out by hand.

    Exact in fp32: 0.0 unless the arithmetic is broken.
    """
    values = {"base": [1.0, -2.0, 0.5], "diff_base": [0.25, 1.0, -1.0], "target": [1.25, 0.0, 3.0]}
    expected = [1.5, -2.5, 2.5]
    made = {name: in_memory(name, {"x": torch.tensor(row)}) for name, row in values.items()}
    merged = merge_difference(
        made["base"], made["diff_base"], made["target"], weight=0.5, policies=Policies()
    )
    return float((merged.tensors.read("x") - torch.tensor(expected)).abs().max())


def in_memory(name: str, state: Mapping[str, Tensor]) -> Tensors:
    """Tensors that are held already, as a source."""
    from pathlib import Path

    facts = {
        key: TensorFacts(shape=tuple(value.shape), dtype=value.dtype)
        for key, value in state.items()
    }
    return Tensors(path=Path(name), kind="memory", facts=facts, read=lambda key: state[key])


def _made(base: Tensors, facts: Mapping[str, TensorFacts], read: Any) -> Tensors:
    return Tensors(path=base.path, kind="merge", facts=facts, read=read)
