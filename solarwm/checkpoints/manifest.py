"""What a checkpoint directory says about itself: the manifest, the marker, and proof of both.

Reads no tensors and imports no torch. A checkpoint exists when its marker does; the marker holds
the digest of the manifest, and the manifest the size and BLAKE2b-256 digest of every file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from solarwm.errors.types import FaultList, SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json, file_blake2b

MANIFEST_NAME = "checkpoint-manifest.json"
MARKER_NAME = "COMPLETE.json"
STATE_NAME = "state.json"
RUNTIME_NAME = "runtime"
METADATA_NAME = ".metadata"
_MAX_RECORD_SIZE = 256 << 20

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Record = TypeVar("_Record", bound="Record")


class Record(BaseModel):
    """A frozen record of a checkpoint file; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, strict=True)


class FileEntry(Record):
    """One file: path relative to the checkpoint, size in bytes, BLAKE2b-256 digest in hex."""

    path: str
    size: int = Field(ge=0)
    blake2b: Digest

    @field_validator("path")
    @classmethod
    def _stay_inside(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        if not parts or path != "/".join(parts) or path.startswith("/") or ".." in parts:
            raise ValueError("a file path must be relative and stay inside the checkpoint")
        if "\\" in path or "\0" in path:
            raise ValueError("a file path must be a plain POSIX path")
        return path


class TensorEntry(Record):
    """One tensor of a member: its whole (unsharded) shape and its dtype name (`float32`)."""

    name: str
    shape: list[int]
    dtype: str


class MemberEntry(Record):
    """One member directory: `<role>-<part>`, with its tensors sorted by name."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*-(model|optimizer|ema)$")
    tensors: list[TensorEntry]


class Manifest(Record):
    """`checkpoint-manifest.json`: what must be there, and what it must be."""

    schema_: Literal["solarwm.checkpoint.v3"] = Field(alias="schema")
    step: int = Field(ge=0)
    run_id: str
    save_index: int = Field(ge=1)
    world_size: int = Field(ge=1)
    contract: dict[str, Any]
    required_components: list[str]
    members: list[MemberEntry]
    files: list[FileEntry]

    def member(self, name: str) -> MemberEntry | None:
        """The member called `name`, or None."""
        return next((member for member in self.members if member.name == name), None)

    def file(self, path: str) -> FileEntry | None:
        """The file at `path` (relative to the checkpoint), or None."""
        return next((file for file in self.files if file.path == path), None)

    def files_under(self, name: str) -> tuple[FileEntry, ...]:
        """The files of one member or folder."""
        return tuple(file for file in self.files if file.path.startswith(f"{name}/"))

    @property
    def size(self) -> int:
        """Bytes of all listed files."""
        return sum(file.size for file in self.files)


class Marker(Record):
    """`COMPLETE.json`: written last; the checkpoint exists because of it."""

    schema_: Literal["solarwm.checkpoint-complete.v3"] = Field(alias="schema")
    step: int = Field(ge=0)
    manifest_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a look at every file of a checkpoint found."""

    path: Path
    manifest: Manifest
    num_files: int
    num_bytes: int
    digests_checked: bool
    strays: tuple[str, ...]


def record_bytes(record: Record) -> bytes:
    """The only accepted spelling of a record on disk."""
    return canonical_json(record.model_dump(mode="json", by_alias=True))


def read_record(path: Path, kind: type[_Record]) -> _Record:
    """Read one canonical JSON record; `checkpoint.damaged` (exit 3) on anything else."""
    return parse_record(_read_small(path), kind, path)


def parse_record(data: bytes, kind: type[_Record], path: Path) -> _Record:
    """Parse `data`, which must be exactly the canonical bytes of a `kind`."""
    try:
        record = kind.model_validate(json.loads(data))
        same = record_bytes(record) == data
    except (ValidationError, ValueError, RecursionError) as fault:
        raise damaged(
            path, f"It is not a valid {kind.__name__.lower()} record: {_short(fault)}"
        ) from fault
    if not same:
        raise damaged(path, "Its bytes are not the canonical form that a save writes.")
    return record


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a complete checkpoint.

    Raises `checkpoint.missing`, `checkpoint.incomplete` (no marker) or `checkpoint.damaged`, all
    exit 3.
    """
    if not checkpoint.is_dir():
        raise SolarError(
            "checkpoint.missing",
            "there is no checkpoint directory",
            where=str(checkpoint),
            fixes=["solarwm checkpoint list RUN shows those of a run."],
        )
    marker_path = checkpoint / MARKER_NAME
    if not os.path.lexists(marker_path):
        raise SolarError(
            "checkpoint.incomplete",
            "the checkpoint is not complete",
            where=str(checkpoint),
            why=f"It has no {MARKER_NAME}: its save was cut short.",
            fixes=["Resume from an earlier one: solarwm checkpoint list RUN."],
        )
    _refuse_package(marker_path)
    marker = read_record(marker_path, Marker)
    manifest_path = checkpoint / MANIFEST_NAME
    data = _read_small(manifest_path)
    if blake2s_hex(data) != marker.manifest_digest:
        raise damaged(manifest_path, "Its digest is not the one in the completion marker.")
    manifest = parse_record(data, Manifest, manifest_path)
    if manifest.step != marker.step:
        why = f"The marker says step {marker.step}, the manifest step {manifest.step}."
        raise damaged(marker_path, why)
    _check_inventory(manifest, manifest_path)
    return manifest


def read_proven(checkpoint: Path, manifest: Manifest, name: str = STATE_NAME) -> dict[str, Any]:
    """A JSON object of the checkpoint (`state.json`), proven by digest (exit 3 otherwise)."""
    entry = manifest.file(name)
    path = checkpoint / name
    if entry is None:
        raise damaged(path, "The manifest does not list it.")
    check_digest(checkpoint, entry)
    try:
        record: object = json.loads(_read_small(path))
    except (ValueError, RecursionError) as fault:
        raise damaged(path, f"It is not JSON: {_short(fault)}") from fault
    if not isinstance(record, dict):
        raise damaged(path, "It is not a JSON object.")
    return cast("dict[str, Any]", record)


def check_sizes(checkpoint: Path, manifest: Manifest) -> None:
    """Raise `checkpoint.damaged` unless every listed file is a regular file of the listed size."""
    faults = [fault for file in manifest.files if (fault := _file_fault(checkpoint, file))]
    if faults:
        raise faults[0] if len(faults) == 1 else FaultList(faults)


def check_digest(checkpoint: Path, file: FileEntry) -> None:
    """Raise `checkpoint.damaged` unless the content of `file` has the recorded digest."""
    if fault := _file_fault(checkpoint, file) or _digest_fault(checkpoint, file):
        raise fault


def verify(checkpoint: Path, *, deep: bool = True) -> Verification:
    """Prove a checkpoint: marker, manifest, presence and sizes; with `deep` also every digest.

    Raises the first kind of fault (exit 3), or a FaultList naming every bad file.
    """
    manifest = read_manifest(checkpoint)
    faults: list[SolarError] = []
    for file in manifest.files:
        fault = _file_fault(checkpoint, file)
        if fault is None and deep:
            fault = _digest_fault(checkpoint, file)
        if fault is not None:
            faults.append(fault)
    if faults:
        raise faults[0] if len(faults) == 1 else FaultList(faults)
    listed = {file.path for file in manifest.files} | {MANIFEST_NAME, MARKER_NAME}
    found = (Path(directory, name) for directory, _, names in os.walk(checkpoint) for name in names)
    strays = sorted(str(path.relative_to(checkpoint)) for path in found)
    return Verification(
        path=checkpoint,
        manifest=manifest,
        num_files=len(manifest.files),
        num_bytes=manifest.size,
        digests_checked=deep,
        strays=tuple(path for path in strays if path not in listed),
    )


def damaged(path: Path, why: str) -> SolarError:
    """The fault of a checkpoint file that is not what was saved."""
    return SolarError(
        "checkpoint.damaged",
        f"the checkpoint is damaged: {path.name}",
        where=str(path),
        why=why,
        fixes=["Use another checkpoint of the run: solarwm checkpoint list RUN."],
        context={"file": str(path)},
    )


def _refuse_package(marker: Path) -> None:
    if b'"solarwm.checkpoint-complete.v2"' not in _read_small(marker):
        return
    raise SolarError(
        "checkpoint.released-package",
        "this is a published package, not a training checkpoint",
        where=str(marker.parent),
        why="Expected a checkpoint of a run (solarwm.checkpoint-complete.v3), found a published "
        "transaction (solarwm.checkpoint-complete.v2): weights without the state of a run.",
        fixes=["--set checkpoint.mode=weights_only"],
    )


def _check_inventory(manifest: Manifest, path: Path) -> None:
    names = [file.path for file in manifest.files]
    if len(set(names)) != len(names):
        raise damaged(path, "It lists a file twice.")
    members = sorted(member.name for member in manifest.members)
    if members != manifest.required_components or len(set(members)) != len(members):
        raise damaged(path, "Its members and its required components differ.")
    for name in [STATE_NAME, *(f"{member}/{METADATA_NAME}" for member in members)]:
        if name not in names:
            raise damaged(path, f"It does not list {name}.")


def _file_fault(checkpoint: Path, file: FileEntry) -> SolarError | None:
    path = checkpoint / file.path
    place = checkpoint
    for part in PurePosixPath(file.path).parts:
        place = place / part
        if place.is_symlink():
            return damaged(path, f"{part} is a symbolic link; a checkpoint holds none.")
    if not path.is_file():
        return damaged(path, f"The file is missing ({file.size} bytes were saved).")
    size = path.stat().st_size
    if size != file.size:
        return damaged(path, f"It has {size} bytes; {file.size} were saved.")
    return None


def _digest_fault(checkpoint: Path, file: FileEntry) -> SolarError | None:
    path = checkpoint / file.path
    try:
        found = file_blake2b(path)
    except OSError as fault:
        return damaged(path, f"It cannot be read: {fault.strerror or fault}.")
    if found != file.blake2b:
        return damaged(path, f"Its BLAKE2b is {found[:12]}..., saved was {file.blake2b[:12]}...")
    return None


def _read_small(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file():
        raise damaged(path, "It is missing or not a regular file.")
    if path.stat().st_size > _MAX_RECORD_SIZE:
        raise damaged(path, "It is far larger than such a record can be.")
    try:
        return path.read_bytes()
    except OSError as fault:
        raise damaged(path, f"It cannot be read: {fault.strerror or fault}.") from fault


def _short(fault: Exception) -> str:
    return " ".join(str(fault).split())[:160]
