"""Whether a weight file of any layout can be read, and whether its numbers are finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from solarwm.errors.types import SolarError
from solarwm.workshop.tensors import open_tensors


def prove_weights(path: Path, *, deep: bool) -> dict[str, Any]:
    """Sizes and numbers of tensors; `deep` reads every one.

    Raises `weights.*` (exit 3): unreadable, or numbers that are not finite, counted by tensor.
    """
    found = open_tensors(path)
    bad: dict[str, int] = {}
    for name, value in found.items() if deep else ():
        floats = value if value.is_floating_point() else None
        if floats is not None and floats.dtype.itemsize == 1:
            floats = floats.float()
        count = int((~torch.isfinite(floats)).sum()) if floats is not None else 0
        if count:
            bad[name] = count
    if bad:
        worst = max(bad, key=lambda name: bad[name])
        raise SolarError(
            "weights.nonfinite",
            f"{len(bad)} of {len(found.facts)} tensors hold {sum(bad.values())} numbers that are not finite",
            where=str(path),
            why=f"most of them {worst}: {bad[worst]}",
            context={"nonfinite": bad},
        )
    return {
        "schema": "solarwm.weights-verification.v1",
        "path": str(path),
        "kind": found.kind,
        "tensors": len(found.facts),
        "num_bytes": found.num_bytes,
        "values_read": deep,
        "nonfinite": 0 if deep else None,
    }
