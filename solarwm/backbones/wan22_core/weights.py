"""Wan transformer weights under published and diffusers names, with a coverage report.

Published and official names are the native ones.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from solarwm.backbones.seam import CoverageReport
from solarwm.backbones.wan22_core.names import from_diffusers, naming_of, to_diffusers
from solarwm.backbones.weight_files import TensorSource, assign, fill, plain_names

ENDPOINT_TENSORS = tuple(
    f"delta_embedding.{index}.{leaf}" for index in (0, 2) for leaf in ("weight", "bias")
)
"""What a flow map has and a flow-matching model has not."""


def export_state(module: nn.Module, *, naming: str) -> dict[str, Tensor]:
    """The module's tensors under `published` or `diffusers` names; values are not copied."""
    state = {name: value.detach() for name, value in module.state_dict().items()}
    if naming == "published":
        return state
    if naming != "diffusers":
        raise ValueError(f"names are published or diffusers, not {naming!r}")
    result = {}
    for name, value in state.items():
        renamed = to_diffusers(name)
        if renamed is None:
            raise ValueError(f"{name} has no diffusers name")
        result[renamed] = value
    return result


def load_weights(
    module: nn.Module, path: Path, *, weights: str, endpoint: str = "exact", check: bool = False
) -> CoverageReport:
    """Fill `module` from a safetensors file, a directory of them, or a `model.pt`.

    `weights` (live or ema) chooses the state of a `model.pt`; a safetensors file holds one. Tensors
    are copied one by one into the parameters, in their dtype. `endpoint` says what may differ in
    the four tensors of the endpoint embedding: nothing (`exact`), they are copied from the time
    embedding where the file has none of them (`fill`), or the file's are left out (`drop`). `check`
    compares names and shapes, looks for numbers that are not finite, and changes nothing. Raises
    `SolarError` `weights.*` (exit 3).
    """
    if endpoint not in ("exact", "fill", "drop"):
        raise ValueError(f"endpoint is exact, fill or drop, not {endpoint!r}")
    source = TensorSource.open(path, weights)
    names = source.names()
    naming = naming_of(list(plain_names(names, path)[0].values()))
    result = fill(
        module,
        path,
        source,
        from_diffusers if naming == "diffusers" else lambda name: name,
        may_miss=ENDPOINT_TENSORS if endpoint == "fill" else (),
        may_drop=ENDPOINT_TENSORS if endpoint == "drop" else (),
        check=check,
    )
    for name in () if check else result.missing:
        twin = module.get_parameter(name.replace("delta_", "time_", 1))
        assign(module, name, twin.detach())
    repack = getattr(module, "pack", None)
    if repack is not None and not check:
        repack()
    return CoverageReport(
        source=str(path),
        naming=naming,
        loaded=result.loaded,
        expected=result.expected,
        missing=(),
        unexpected=(),
        stripped_prefix=result.stripped_prefix,
        filled=result.missing,
        dropped=result.dropped,
    )
