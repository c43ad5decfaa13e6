"""Published weight packages: a directory with `model.pt`, a manifest, a marker, a release note.

Reads no tensors and imports no torch. The published transaction records sizes, not digests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solarwm.checkpoints.manifest import MANIFEST_NAME, MARKER_NAME, damaged
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json

NOTE_NAME = "release-manifest.json"
MODEL_NAME = "model.pt"
CRITIC_NAME = "critic.pt"
INFERENCE_SCHEMA = "solarwm.wan22-stage2-inference.v1"
STANDARD_VARIANT = "standard"
CONTRACT = (
    "family",
    "stage",
    "causal_mode",
    "objective",
    "objective_variant",
    "camera_translation_transform",
)
"""What a source of weights says it was trained as."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


_Kind = TypeVar("_Kind", bound=_Record)


class PackageFile(_Record):
    """One payload file."""

    path: str
    size: int = Field(gt=0)


class PackageManifest(_Record):
    """`checkpoint-manifest.json` of the published transaction."""

    schema_: Literal["solarwm.checkpoint.v2"] = Field(
        alias="schema", default="solarwm.checkpoint.v2"
    )
    step: int = Field(ge=0)
    contract: dict[str, Any]
    required_components: list[str]
    files: list[PackageFile]
    metadata: dict[str, Any] = Field(default_factory=dict)


class PackageMarker(_Record):
    """`COMPLETE.json` of the published transaction."""

    schema_: Literal["solarwm.checkpoint-complete.v2"] = Field(
        alias="schema", default="solarwm.checkpoint-complete.v2"
    )
    step: int = Field(ge=0)
    manifest_digest: str


class _Load(_Record):
    format: str
    entrypoint: str = "."
    default_weights: Literal["live", "ema"]


class _Model(_Record):
    weight_role: str


class _Identity(_Record):
    model: _Model


class ReleaseNote(_Record):
    """`release-manifest.json`: which weights a release means unless told otherwise."""

    schema_: Literal["solarwm.public-weight-manifest.v1"] = Field(
        alias="schema", default="solarwm.public-weight-manifest.v1"
    )
    load: _Load
    identity: _Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A complete published directory."""

    path: Path
    step: int
    contract: dict[str, str]
    metadata: dict[str, Any]
    weights: tuple[str, ...]
    """What its metadata says `model.pt` holds; empty where it says nothing."""
    default_weights: str | None
    """What the release note means by default; None without a note."""
    manifest_digest: str


def is_package(path: Path) -> bool:
    """Whether `path` is a published transaction: a directory whose marker has the published form."""
    marker = path / MARKER_NAME
    if not marker.is_file():
        return False
    try:
        document: object = json.loads(marker.read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(document, dict):
        return False
    return cast("dict[str, object]", document).get("schema") == "solarwm.checkpoint-complete.v2"


def read_package(path: Path) -> Package:
    """The package at `path`: marker, manifest, sizes and release note, all checked.

    Raises `checkpoint.damaged` (exit 3) where they contradict each other or the files.
    """
    marker = _parsed(path / MARKER_NAME, PackageMarker)
    data = _bytes(path / MANIFEST_NAME)
    if blake2s_hex(data) != marker.manifest_digest:
        raise damaged(path / MANIFEST_NAME, "Its digest is not the one in the completion marker.")
    manifest = _parsed(path / MANIFEST_NAME, PackageManifest)
    if manifest.step != marker.step:
        raise damaged(path, f"Marker and manifest say steps {marker.step} and {manifest.step}.")
    for file in manifest.files:
        _check_file(path, file)
    if MODEL_NAME not in manifest.required_components:
        raise damaged(path, f"It holds {manifest.required_components}, and no {MODEL_NAME}.")
    weights = cast("list[object]", manifest.metadata.get("available_weights") or [])
    return Package(
        path=path,
        step=manifest.step,
        contract=plain_contract(manifest.contract),
        metadata=manifest.metadata,
        weights=tuple(map(str, weights)),
        default_weights=_default(path),
        manifest_digest=marker.manifest_digest,
    )


def plain_contract(values: dict[str, Any]) -> dict[str, str]:
    """The compared fields of a contract; no variant is written `standard`."""
    contract = {name: str(values[name]) for name in CONTRACT if values.get(name) is not None}
    if contract:
        contract.setdefault("objective_variant", STANDARD_VARIANT)
    return contract


def package_files(manifest: PackageManifest, note: ReleaseNote | None) -> dict[str, bytes]:
    """The small files of a package by name, the marker last."""
    data = canonical_json(manifest.model_dump(mode="json", by_alias=True))
    marker = PackageMarker(step=manifest.step, manifest_digest=blake2s_hex(data))
    files = {MANIFEST_NAME: data}
    if note is not None:
        files[NOTE_NAME] = canonical_json(note.model_dump(mode="json", by_alias=True))
    files[MARKER_NAME] = canonical_json(marker.model_dump(mode="json", by_alias=True))
    return files


def release_note(*, format: str, default_weights: str, weights: tuple[str, ...]) -> ReleaseNote:
    """The note of a package whose `model.pt` holds `weights`."""
    return ReleaseNote.model_validate(
        {
            "load": {"format": format, "default_weights": default_weights},
            "identity": {"model": {"weight_role": "+".join(weights)}},
        }
    )


def _default(path: Path) -> str | None:
    place = path / NOTE_NAME
    if not place.is_file():
        return None
    note = _parsed(place, ReleaseNote)
    roles = note.identity.model.weight_role.split("+")
    if note.load.default_weights not in roles:
        why = f"It loads {note.load.default_weights} weights by default, but names {roles}."
        raise damaged(place, why)
    return note.load.default_weights


def _check_file(path: Path, file: PackageFile) -> None:
    place = path / file.path
    if place.is_symlink() or ".." in Path(file.path).parts or file.path.startswith("/"):
        raise SolarError(
            "checkpoint.unsafe", "a package holds plain files of its own", where=str(place)
        )
    if not place.is_file():
        raise damaged(place, f"The file is missing ({file.size} bytes were published).")
    size = place.stat().st_size
    if size != file.size:
        raise damaged(place, f"It has {size} bytes; {file.size} were published.")


def _parsed(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        return kind.model_validate(json.loads(_bytes(path)))
    except (ValidationError, ValueError) as fault:
        first = " ".join(str(fault).split())[:200]
        raise damaged(path, f"It is no published {path.name}: {first}") from fault


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise damaged(path, f"It cannot be read: {fault.strerror or fault}.") from fault
