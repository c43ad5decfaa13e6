"""Named tensors of any weight file of this field, read one at a time: safetensors (a file, a folder, an
index of shards), torch files in any wrapper, DCP directories, our checkpoints, published packages.

Nothing in a file is executed: torch files are read with `weights_only`, DCP metadata by our restricted
reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from solarwm.backbones.weight_files import read_document
from solarwm.checkpoints.directory import find
from solarwm.checkpoints.headers import TYPES, unreadable
from solarwm.checkpoints.manifest import METADATA_NAME, check_sizes, read_manifest
from solarwm.checkpoints.metadata import parse_metadata
from solarwm.checkpoints.packages import MODEL_NAME, is_package, read_package
from solarwm.checkpoints.shard_reader import read_member, read_metadata
from solarwm.errors.types import SolarError

LIVE, EMA = "live", "ema"
WRAPPERS = {
    LIVE: ("generator", "state_dict", "model", "module"),
    EMA: ("generator_ema", "ema", "ema_state_dict", "model_ema"),
    "critic": ("critic",),
}
"""Where a torch file keeps which weights, first found."""
MOST_HEADER_BYTES = 64 << 20
"""Longest header of a safetensors file that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """What is known of a tensor before it is read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """The tensors of one source, in the order of its files."""

    path: Path
    kind: str
    """`safetensors`, `torch`, `dcp`, `checkpoint` or `package`."""
    facts: Mapping[str, TensorFacts]
    read: Callable[[str], Tensor]
    """One tensor, on the CPU."""
    left_out: tuple[str, ...] = ()
    """Entries that are no tensors."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Free text of a safetensors file."""

    @property
    def num_bytes(self) -> int:
        """Of all tensors."""
        return sum(facts.num_bytes for facts in self.facts.values())

    def renamed(self, names: Mapping[str, str]) -> Tensors:
        """Some of the tensors under other names: `names` gives the old one of each new."""
        return Tensors(
            path=self.path,
            kind=self.kind,
            facts={new: self.facts[old] for new, old in names.items()},
            read=lambda name: self.read(names[name]),
            left_out=self.left_out,
            metadata=self.metadata,
        )

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor, one after another."""
        return ((name, self.read(name)) for name in self.facts)


def open_tensors(path: Path, *, weights: str = LIVE, role: str = "student") -> Tensors:
    """The tensors at `path`. Reads headers, and of a torch file its pickle, not the values.

    `weights` and `role` choose among several sets where the source has them. Raises `weights.*` or
    `checkpoint.*` (exit 3): missing, damaged, unsafe, or no tensors at all.
    """
    if not path.exists():
        raise SolarError("weights.missing", "there is nothing there", where=str(path))
    found = _opened(path, weights, role)
    if not found.facts:
        raise SolarError(
            "weights.empty",
            f"{path.name} holds no tensors",
            where=str(path),
            why=f"{len(found.left_out)} entries are no tensors" if found.left_out else "",
        )
    return found


def _opened(path: Path, weights: str, role: str) -> Tensors:
    if path.is_file():
        if path.suffix == ".safetensors":
            return _safetensors(path, [path])
        if path.name.endswith(".index.json"):
            return _indexed(path)
        return _torch(path, weights if role == "student" else role)
    if is_package(path):
        read_package(path)
        return _torch(path / MODEL_NAME, weights)
    if (path / METADATA_NAME).is_file():
        return _dcp(path, weights, role)
    for folder in (path, path / "transformer"):
        indexes = sorted(folder.glob("*.safetensors.index.json")) if folder.is_dir() else []
        if indexes:
            return _indexed(indexes[0])
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
        if files:
            return _safetensors(folder, files)
    if (path / MODEL_NAME).is_file() and not (path / "COMPLETE.json").exists():
        return _torch(path / MODEL_NAME, weights)
    return _checkpoint(find(path), weights, role)


def _indexed(index: Path) -> Tensors:
    try:
        document = json.loads(index.read_bytes())
        wanted: dict[str, str] = dict(document["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(index, f"it is no index of shards: {error}") from None
    names = sorted(set(wanted.values()))
    if any("/" in name or name in ("", ".", "..") for name in names):
        raise unreadable(index, "a shard is not a plain file name")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise SolarError(
            "weights.missing",
            f"{len(missing)} of {len(names)} shards of {index.name} are not there",
            where=str(index),
            why=", ".join(missing[:20]),
            context={"missing": missing},
        )
    stray = sorted({item.name for item in index.parent.glob("*.safetensors")} - set(names))
    if stray:
        raise SolarError(
            "weights.unexpected-tensors",
            f"{len(stray)} shards beside {index.name} are not in it",
            where=str(index),
            why=", ".join(stray[:20]),
            fixes=["take them out of the folder, or name one file"],
        )
    found = _safetensors(index.parent, [index.parent / name for name in names])
    if set(found.facts) != set(wanted):
        lacking = sorted(set(wanted) ^ set(found.facts))
        raise unreadable(index, f"index and shards differ in {len(lacking)} names: {lacking[0]}")
    return found


def _safetensors(path: Path, files: list[Path]) -> Tensors:
    from safetensors import SafetensorError, safe_open

    facts: dict[str, TensorFacts] = {}
    places: dict[str, Path] = {}
    metadata: dict[str, str] = {}
    for file in files:
        _check_header(file)
        try:
            with safe_open(str(file), framework="pt", device="cpu") as handle:
                metadata.update(handle.metadata() or {})
                for name in handle.keys():  # noqa: SIM118
                    if name in places:
                        raise SolarError(
                            "weights.duplicate",
                            f"{name} is in {places[name].name} and in {file.name}",
                            where=str(path),
                        )
                    part = handle.get_slice(name)
                    dtype = _DTYPES.get(part.get_dtype())
                    if dtype is None:
                        raise unreadable(file, f"{name} has the type {part.get_dtype()}")
                    facts[name] = TensorFacts(shape=tuple(part.get_shape()), dtype=dtype)
                    places[name] = file
        except (SafetensorError, OSError, ValueError) as error:
            raise unreadable(file, str(error)) from None

    def read(name: str) -> Tensor:
        with safe_open(str(places[name]), framework="pt", device="cpu") as handle:
            return handle.get_tensor(name)

    return Tensors(path=path, kind="safetensors", facts=facts, read=read, metadata=metadata)


def _check_header(file: Path) -> None:
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise unreadable(file, f"its header would be {length} bytes of {size}")


def _torch(path: Path, weights: str) -> Tensors:
    document = read_document(path)
    state = _unwrapped(document, weights, path)
    found = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return Tensors(
        path=path,
        kind="torch",
        facts={
            name: TensorFacts(shape=tuple(value.shape), dtype=value.dtype)
            for name, value in found.items()
        },
        read=lambda name: found[name].detach().contiguous(),
        left_out=tuple(sorted(str(name) for name in state if name not in found)),
    )


def _unwrapped(document: Any, weights: str, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise unreadable(path, f"it holds a {type(document).__name__}, not tensors by name")
    known = {name for names in WRAPPERS.values() for name in names}
    for name in WRAPPERS[weights]:
        if isinstance(document.get(name), dict):
            return _unwrapped(document[name], LIVE, path)
    held = sorted(known & {str(name) for name in document})
    if weights != LIVE or (held and not any(isinstance(v, Tensor) for v in document.values())):
        raise SolarError(
            "weights.role-missing",
            f"{path.name} holds no {weights} weights",
            where=str(path),
            why=f"found {', '.join(held) or 'tensors without a name for a set'}",
        )
    return document


def _dcp(path: Path, weights: str, role: str) -> Tensors:
    metadata = parse_metadata((path / METADATA_NAME).read_bytes(), path, bytes_too=True)
    facts = {
        name: TensorFacts(shape=tuple(entry.size), dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }

    def read(name: str) -> Tensor:
        target = torch.empty(facts[name].shape, dtype=facts[name].dtype)
        read_member(path.parent, path.name, metadata, {name: target})
        return target

    others = tuple(sorted(set(map(str, metadata.state_dict_metadata)) - set(facts)))
    found = Tensors(path=path, kind="dcp", facts=facts, read=read, left_out=others)
    return _chosen(found, weights, role)


def _chosen(found: Tensors, weights: str, role: str) -> Tensors:
    """The set that is meant where names say which: `net.` and `net_ema.`, `roles.NAME.transformer.`"""
    averaged = any(name.startswith("net_ema.") for name in found.facts)
    if averaged or weights == EMA:
        prefix = "net_ema." if weights == EMA else "net."
    elif any(name.startswith("roles.") for name in found.facts):
        prefix = f"roles.{role}.transformer."
    else:
        return found
    return found.renamed(
        {name.removeprefix(prefix): name for name in found.facts if name.startswith(prefix)}
    )


def _checkpoint(place: Path, weights: str, role: str) -> Tensors:
    manifest = read_manifest(place)
    check_sizes(place, manifest)
    member = f"{role}-{'model' if weights == LIVE else 'ema'}"
    if manifest.member(member) is None:
        raise SolarError(
            "checkpoint.ema-missing" if weights == EMA else "weights.role-missing",
            f"{place.name} holds no {weights} weights of the {role}",
            where=str(place),
            why=f"found {', '.join(item.name for item in manifest.members)}",
        )
    metadata = read_metadata(place, member, manifest)
    entries = manifest.member(member)
    facts = {
        entry.name: TensorFacts(shape=tuple(entry.shape), dtype=getattr(torch, entry.dtype))
        for entry in (entries.tensors if entries else ())
    }

    def read(name: str) -> Tensor:
        target = torch.empty(facts[name].shape, dtype=facts[name].dtype)
        read_member(place, member, metadata, {name: target})
        return target

    return Tensors(path=place, kind="checkpoint", facts=facts, read=read)


_DTYPES = {name: getattr(torch, dtype) for name, dtype in TYPES.items()}
SAFETENSORS_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
"""How a safetensors header names a type."""
