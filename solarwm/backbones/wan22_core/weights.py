"""Wan transformer weights under published and diffusers names, with a coverage report.

Published and official names are the native ones. Every tensor of a file is used exactly once, or
the load fails and says which were not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from solarwm.backbones.seam import CoverageReport
from solarwm.backbones.wan22_core.names import from_diffusers, naming_of, to_diffusers
from solarwm.errors.types import FaultList, SolarError

PREFIX = "model."
ENDPOINT_TENSORS = tuple(
    f"delta_embedding.{index}.{leaf}" for index in (0, 2) for leaf in ("weight", "bias")
)
"""What a flow map has and a flow-matching model has not."""
STATE_KEYS = {"live": "generator", "ema": "generator_ema"}


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
    module: nn.Module, path: Path, *, weights: str, endpoint: str = "exact"
) -> CoverageReport:
    """Fill `module` from a safetensors file, a directory of them, or a `model.pt`.

    `weights` (live or ema) chooses the state of a `model.pt`; a safetensors file holds one. Tensors
    are copied one by one into the parameters, in their dtype. `endpoint` says what may differ in
    the four tensors of the endpoint embedding: nothing (`exact`), they are copied from the time
    embedding where the file has none of them (`fill`), or the file's are left out (`drop`). Raises
    `SolarError` `weights.*` (exit 3).
    """
    if endpoint not in ("exact", "fill", "drop"):
        raise ValueError(f"endpoint is exact, fill or drop, not {endpoint!r}")
    source = TensorSource.open(path, weights)
    names = source.names()
    if not names:
        raise SolarError("weights.empty", f"{path.name} holds no tensors", where=str(path))
    stripped = _prefix(names, path)
    naming = naming_of([name.removeprefix(stripped) for name in names])
    targets = dict(module.named_parameters(remove_duplicate=False))
    mapping: dict[str, str] = {}
    unexpected, dropped = [], []
    for name in names:
        bare = name.removeprefix(stripped)
        ours = from_diffusers(bare) if naming == "diffusers" else bare
        if ours in targets:
            mapping[name] = ours
        elif endpoint == "drop" and ours in ENDPOINT_TENSORS:
            dropped.append(name)
        else:
            unexpected.append(name)
    missing = sorted(set(targets) - set(mapping.values()))
    fill = endpoint == "fill" and missing == sorted(ENDPOINT_TENSORS)
    _refuse(path, [] if fill else missing, unexpected, source.shapes(), mapping, targets)
    with torch.no_grad():
        for name, value in source.tensors(mapping):
            _finite(path, name, value)
            _assign(module, mapping[name], targets[mapping[name]], value)
        if fill:
            for name in missing:
                twin = module.get_parameter(name.replace("delta_", "time_", 1))
                _assign(module, name, targets[name], twin.detach())
    repack = getattr(module, "pack", None)
    if repack is not None:
        repack()
    return CoverageReport(
        source=str(path),
        naming=naming,
        loaded=len(mapping),
        expected=len(targets),
        missing=(),
        unexpected=(),
        stripped_prefix=stripped,
        filled=tuple(missing) if fill else (),
        dropped=tuple(dropped),
    )


def _finite(path: Path, name: str, value: Tensor) -> None:
    if value.is_floating_point() and not torch.isfinite(value).all():
        bad = int((~torch.isfinite(value)).sum())
        raise SolarError(
            "weights.nonfinite",
            f"{name} of {path.name} holds {bad} numbers that are not finite",
            where=str(path),
            why=f"Expected {value.numel()} finite numbers, found {value.numel() - bad}.",
            fixes=["Load an earlier checkpoint: these weights were saved after a run diverged."],
            context={"tensor": name, "nonfinite": bad},
        )


def _assign(module: nn.Module, name: str, parameter: nn.Parameter, value: Tensor) -> None:
    if not parameter.is_meta:
        parameter.copy_(value)
        return
    owner, _, leaf = name.rpartition(".")
    fresh = nn.Parameter(value.clone(), requires_grad=parameter.requires_grad)
    setattr(module.get_submodule(owner), leaf, fresh)


def _prefix(names: list[str], path: Path) -> str:
    prefixed = [name for name in names if name.startswith(PREFIX)]
    if not prefixed:
        return ""
    if len(prefixed) != len(names):
        bare = next(name for name in names if not name.startswith(PREFIX))
        raise SolarError(
            "weights.mixed-prefix",
            f"{path.name} names some tensors `{PREFIX}...` and some without",
            where=str(path),
            why=f"{len(prefixed)} of {len(names)} names have the prefix; {bare} has not.",
        )
    return PREFIX


def _refuse(
    path: Path,
    missing: list[str],
    unexpected: list[str],
    shapes: Mapping[str, tuple[int, ...]],
    mapping: Mapping[str, str],
    targets: Mapping[str, nn.Parameter],
) -> None:
    faults: list[SolarError] = []
    where = str(path)
    if not mapping:
        faults.append(
            SolarError(
                "weights.no-match",
                f"none of the {len(shapes)} tensors of {path.name} belongs to this model",
                where=where,
                why=f"The file has {_some(sorted(shapes))}; "
                f"the model wants {_some(sorted(targets))}.",
            )
        )
        raise faults[0]
    if missing:
        faults.append(
            SolarError(
                "weights.missing-tensors",
                f"{len(missing)} of {len(targets)} tensors are not in {path.name}",
                where=where,
                why=f"Missing: {_some(missing)}.",
                context={"missing": missing},
            )
        )
    if unexpected:
        faults.append(
            SolarError(
                "weights.unexpected-tensors",
                f"{len(unexpected)} tensors of {path.name} belong to no part of this model",
                where=where,
                why=f"Unexpected: {_some(unexpected)}.",
                context={"unexpected": unexpected},
            )
        )
    wrong = [
        f"{name} is {list(shapes[name])}, the model has {list(targets[ours].shape)}"
        for name, ours in mapping.items()
        if shapes[name] != tuple(targets[ours].shape)
    ]
    if wrong:
        faults.append(
            SolarError(
                "weights.shape",
                f"{len(wrong)} tensors of {path.name} have another shape than the model's",
                where=where,
                why="; ".join(wrong[:3]) + ("; ..." if len(wrong) > 3 else "."),
                fixes=["Check that model.profile is the size these weights were made for."],
                context={"wrong": wrong},
            )
        )
    if faults:
        raise FaultList(faults) if len(faults) > 1 else faults[0]


def _some(names: list[str], limit: int = 3) -> str:
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


class TensorSource:
    """Named tensors of one or several files, read one at a time where the format allows it."""

    def __init__(
        self, files: Mapping[str, Path] | None, state: Mapping[str, Tensor] | None
    ) -> None:
        self._files = files
        self._state = state

    @classmethod
    def open(cls, path: Path, weights: str) -> TensorSource:
        """A safetensors file or directory, or a torch file read with `weights_only`."""
        if path.is_dir():
            files = sorted(path.glob("*.safetensors"))
            if files:
                return cls(_names_of(files), None)
            path = path / "model.pt"
        if not path.is_file():
            raise SolarError(
                "weights.missing",
                f"there are no weights at {path}",
                where=str(path),
                why="Neither *.safetensors nor model.pt is there.",
            )
        if path.suffix == ".safetensors":
            return cls(_names_of([path]), None)
        return cls(None, _torch_state(path, weights))

    def names(self) -> list[str]:
        """All tensor names."""
        return list(self._files if self._files is not None else self._state or {})

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor, without reading the data of safetensors files."""
        if self._files is None:
            return {name: tuple(value.shape) for name, value in (self._state or {}).items()}
        result = {}
        for path, names in self._by_file().items():
            with _opened(path) as handle:
                for name in names:
                    result[name] = tuple(handle.get_slice(name).get_shape())
        return result

    def tensors(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of the wanted names."""
        if self._files is None:
            for name, value in (self._state or {}).items():
                if name in wanted:
                    yield name, value
            return
        for path, names in self._by_file().items():
            with _opened(path) as handle:
                for name in names:
                    if name in wanted:
                        yield name, handle.get_tensor(name)

    def _by_file(self) -> dict[Path, list[str]]:
        result: dict[Path, list[str]] = {}
        for name, path in (self._files or {}).items():
            result.setdefault(path, []).append(name)
        return result


def _names_of(files: list[Path]) -> dict[str, Path]:
    names: dict[str, Path] = {}
    for path in files:
        with _opened(path) as handle:
            for name in handle.keys():  # noqa: SIM118
                if name in names:
                    raise SolarError(
                        "weights.duplicate",
                        f"{name} is in {names[name].name} and in {path.name}",
                        where=str(path),
                        why="A directory of weights must hold every tensor once.",
                    )
                names[name] = path
    return names


def _opened(path: Path):  # type: ignore[no-untyped-def]
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _torch_state(path: Path, weights: str) -> dict[str, Tensor]:
    try:
        document = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    key = STATE_KEYS.get(weights)
    if key is None:
        raise ValueError(f"weights are live or ema, not {weights!r}")
    if isinstance(document, dict) and any(name in document for name in STATE_KEYS.values()):
        if key not in document:
            raise SolarError(
                "weights.role-missing",
                f"{path.name} holds no {weights} weights ({key})",
                where=str(path),
                why=f"It holds {', '.join(sorted(map(str, document)))}.",
            )
        document = document[key]
    if not isinstance(document, dict) or not all(isinstance(v, Tensor) for v in document.values()):
        raise SolarError(
            "weights.unreadable", f"{path.name} is no state dict of tensors", where=str(path)
        )
    return document


def _unreadable(path: Path, error: Exception) -> SolarError:
    first = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    return SolarError(
        "weights.unreadable", f"{path.name} cannot be read as weights", where=str(path), why=first
    )
