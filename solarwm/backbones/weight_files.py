"""Files of named tensors: opened safely, read one tensor at a time, matched to a module key by key.

A file names its tensors as published, as diffusers does or as we do; whatever the names, every
tensor is used exactly once, or the load fails and says which were not.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solarwm.backbones.quantized import Quantization
from solarwm.errors.types import FaultList, SolarError

INNER = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""Segments that wrappers put anywhere into a name."""
OUTER = ("model.", "module.", "net.")
"""Prefixes of whole files, in any nesting."""
STATE_KEYS = {"live": "generator", "ema": "generator_ema", "critic": "critic"}
"""Where a published torch file keeps which weights."""


def fill(
    module: nn.Module,
    path: Path,
    source: TensorSource,
    rename: Callable[[str], str | None],
    *,
    may_miss: tuple[str, ...] = (),
    may_drop: tuple[str, ...] = (),
    check: bool = False,
) -> Filled:
    """Copy every tensor of `source` into the parameter that `rename` names, in its dtype.

    `rename` gets names without what wrappers put around them. `may_miss` are parameters the file may lack,
    all of them or none; `may_drop` are names it may have beyond the module's. A meta parameter is
    replaced. `check` compares names and shapes, looks at every value and copies nothing. Raises
    `SolarError` `weights.*` (exit 3).
    """
    names = source.names()
    if not names:
        raise SolarError("weights.empty", f"{path.name} holds no tensors", where=str(path))
    plain, stripped = plain_names(names, path)
    targets = dict(module.named_parameters())
    aliases = _aliases(module, targets)
    mapping: dict[str, str] = {}
    unexpected, dropped = [], []
    for name in names:
        ours = rename(plain[name])
        ours = aliases.get(ours or "", ours)
        if ours in targets and ours in mapping.values():
            dropped.append(name)
        elif ours in targets:
            mapping[name] = ours
        elif ours in may_drop:
            dropped.append(name)
        else:
            unexpected.append(name)
    missing = sorted(set(targets) - set(mapping.values()))
    absent = bool(may_miss) and missing == sorted(may_miss)
    _refuse(path, [] if absent else missing, unexpected, source.shapes(), mapping, targets)
    with torch.no_grad():
        for name, value in source.tensors(mapping):
            _finite(path, name, value)
            if not check:
                assign(module, mapping[name], value)
    return Filled(
        loaded=len(mapping),
        expected=len(targets),
        missing=tuple(missing),
        dropped=tuple(dropped),
        stripped_prefix=stripped,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What `fill` did."""

    loaded: int
    expected: int
    missing: tuple[str, ...]
    """Allowed gaps; the caller fills them."""
    dropped: tuple[str, ...]
    """Allowed surplus, and second names of tied parameters."""
    stripped_prefix: str


def _aliases(module: nn.Module, targets: Mapping[str, nn.Parameter]) -> dict[str, str]:
    """Second names of tied parameters to their first."""
    first = {id(parameter): name for name, parameter in targets.items()}
    every = module.named_parameters(remove_duplicate=False)
    return {name: first[id(parameter)] for name, parameter in every if name not in targets}


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


@torch.no_grad()
def assign(module: nn.Module, name: str, value: Tensor) -> None:
    """Copy `value` into the parameter `name`; a meta parameter becomes a copy of it."""
    parameter = module.get_parameter(name)
    if not parameter.is_meta:
        parameter.copy_(value)
        return
    owner, _, leaf = name.rpartition(".")
    fresh = nn.Parameter(
        value.to(parameter.dtype, copy=True), requires_grad=parameter.requires_grad
    )
    setattr(module.get_submodule(owner), leaf, fresh)


def plain_names(names: Iterable[str], path: Path) -> tuple[dict[str, str], str]:
    """The name of each tensor without what wrappers put there: segments of `INNER`, then prefixes of
    `OUTER` that all share; and those prefixes.

    Raises `weights.mixed-prefix` (exit 3) where only some names have one, `weights.duplicate` where two
    names become one.
    """
    plain = {name: ".".join(p for p in name.split(".") if p not in INNER) for name in names}
    stripped = ""
    while plain:
        having = {p: [n for n in plain.values() if n.startswith(p)] for p in OUTER}
        shared = next((p for p in OUTER if len(having[p]) == len(plain)), None)
        if shared is None:
            break
        stripped += shared
        plain = {name: short.removeprefix(shared) for name, short in plain.items()}
    for prefix in OUTER:
        prefixed = [name for name, short in plain.items() if short.startswith(prefix)]
        if prefixed:
            bare = next(name for name, short in plain.items() if not short.startswith(prefix))
            raise SolarError(
                "weights.mixed-prefix",
                f"{path.name} names some tensors `{prefix}...` and some without",
                where=str(path),
                why=f"{len(prefixed)} of {len(plain)} names have the prefix; {bare} has not.",
            )
    if len(set(plain.values())) < len(plain):
        told: dict[str, str] = {}
        for name, short in plain.items():
            if short in told:
                raise SolarError(
                    "weights.duplicate",
                    f"{told[short]} and {name} are both {short}",
                    where=str(path),
                )
            told[short] = name
    return plain, stripped


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
        self,
        files: Mapping[str, Path] | None,
        state: Mapping[str, Tensor] | None,
        quantization: Quantization | None = None,
    ) -> None:
        self._files = files
        self._state = state
        self._quantization = quantization

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
            return cls(_names_of([path]), None, _quantization_of(path))
        return cls(None, _torch_state(path, weights))

    def names(self) -> list[str]:
        """All tensor names; the weight of a quantised layer is called as before."""
        names = list(self._files if self._files is not None else self._state or {})
        note = self._quantization
        if note is None:
            return names
        return [
            f"{layer}.weight" if (layer := note.layer(name)) else name
            for name in names
            if not note.is_scale(name)
        ]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor, without reading the data of safetensors files."""
        if self._files is None:
            return {name: tuple(value.shape) for name, value in (self._state or {}).items()}
        result = {}
        for path, names in self._by_file().items():
            with _opened(path) as handle:
                for name in names:
                    result[self._told(name)] = tuple(handle.get_slice(name).get_shape())
        return {name: result[name] for name in self.names()}

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
                    told, note = self._told(name), self._quantization
                    if told not in wanted or (note is not None and note.is_scale(name)):
                        continue
                    value = handle.get_tensor(name)
                    if note is not None and (layer := note.layer(name)):
                        value = note.weight(layer, value, handle.get_tensor(f"{layer}.scale"))
                    yield told, value

    def _told(self, name: str) -> str:
        layer = self._quantization.layer(name) if self._quantization is not None else None
        return f"{layer}.weight" if layer else name

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


def _quantization_of(path: Path) -> Quantization | None:
    with _opened(path) as handle:
        try:
            return Quantization.of(handle.metadata() or {})
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from error


def _opened(path: Path):  # type: ignore[no-untyped-def]
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def read_document(path: Path) -> Any:
    """What a torch file holds, read with `weights_only`; tensors stay on disk where the format allows.

    Raises `weights.unreadable` (exit 3) for a damaged file and for pickled objects.
    """
    try:
        mapped = zipfile.is_zipfile(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:
        raise _unreadable(path, error) from error


def _torch_state(path: Path, weights: str) -> dict[str, Tensor]:
    document = read_document(path)
    key = STATE_KEYS.get(weights)
    if key is None:
        raise ValueError(f"weights are live, ema or critic, not {weights!r}")
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
