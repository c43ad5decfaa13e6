"""Checkpoints below an address of an object store, which has no rename: one exists when its marker
does, and the marker is written last and removed first."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from solarwm.checkpoints.directory import checkpoint_name, step_of
from solarwm.checkpoints.manifest import (
    MANIFEST_NAME,
    MARKER_NAME,
    Manifest,
    Marker,
    check_digest,
    damaged,
    parse_record,
    read_manifest,
    verify,
)
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex
from solarwm.storage.durable import make_directories, staged_directory

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectListing:
    """What lies below an address, by step: `complete` have their marker, `partial` have not."""

    complete: tuple[str, ...]
    partial: tuple[str, ...]

    @property
    def newest(self) -> str | None:
        """The complete checkpoint of the highest step, or None."""
        return self.complete[-1] if self.complete else None


class ObjectRoot:
    """Checkpoints of one run below one address (`s3://bucket/run`, `gs://...`, any of fsspec's).

    For one process at a time. Raises `store.denied` and `store.no-answer` (exit 5) for a store that
    refuses or fails; what was begun is then partial, and the same call may be made again.
    """

    def __init__(self, address: str, *, options: dict[str, Any] | None = None) -> None:
        self.address = address.rstrip("/")
        fsspec = importlib.import_module("fsspec")
        system, path = fsspec.core.url_to_fs(self.address, **(options or {}))
        self._system: Any = system
        self._path: str = str(path).rstrip("/")

    def push(self, checkpoint: Path) -> str:
        """Copy a complete local checkpoint here and give its address; every file is proven by its
        digest first, and by the store's size after. Once more does nothing.

        Raises `checkpoint.exists` (exit 5) when another one of that step is complete here, and what
        `read_manifest` and `check_digest` raise.
        """
        manifest = read_manifest(checkpoint)
        name = checkpoint_name(manifest.step)
        marker = (checkpoint / MARKER_NAME).read_bytes()
        there = self._read(name, MARKER_NAME)
        if there == marker:
            return f"{self.address}/{name}"
        if there is not None:
            raise SolarError(
                "checkpoint.exists",
                "the store holds another checkpoint of this step",
                where=f"{self.address}/{name}",
                fixes=["give each run an address of its own"],
            )
        for file in manifest.files:
            check_digest(checkpoint, file)
            self._put(checkpoint / file.path, name, file.path)
        self._put(checkpoint / MANIFEST_NAME, name, MANIFEST_NAME)
        self._put(checkpoint / MARKER_NAME, name, MARKER_NAME)
        return f"{self.address}/{name}"

    def listing(self) -> ObjectListing:
        """The checkpoints here, by step. Names that are not ours appear nowhere."""
        self._system.invalidate_cache()
        try:
            found = self._ask(
                lambda: cast("list[str]", self._system.ls(self._path, detail=False)), self.address
            )
        except FileNotFoundError:
            found = []
        names = {path.rstrip("/").rpartition("/")[2] for path in found}
        ours = sorted((name for name in names if step_of(name) is not None), key=_step)
        complete = [name for name in ours if self._read(name, MARKER_NAME) is not None]
        return ObjectListing(
            complete=tuple(complete),
            partial=tuple(name for name in ours if name not in complete),
        )

    def fetch(self, run_root: Path, *, name: str | None = None) -> Path:
        """Copy the checkpoint `name`, else the newest complete one, into a run directory; every
        file is proven before it is published there.

        Raises `checkpoint.missing`, `checkpoint.incomplete` or `checkpoint.damaged` (exit 3); then
        nothing is left. `FileExistsError` when the directory has one of that name.
        """
        name = name or self.listing().newest
        if name is None:
            raise SolarError(
                "checkpoint.missing", "there is no complete checkpoint", where=self.address
            )
        marker_data = self._read(name, MARKER_NAME)
        if marker_data is None:
            raise SolarError(
                "checkpoint.incomplete",
                "the checkpoint is not complete",
                where=f"{self.address}/{name}",
                why=f"It has no {MARKER_NAME}: its copy was cut short.",
            )
        place = Path(name)
        marker = parse_record(marker_data, Marker, place / MARKER_NAME)
        data = self._read(name, MANIFEST_NAME)
        if data is None or blake2s_hex(data) != marker.manifest_digest:
            raise damaged(place / MANIFEST_NAME, "It is missing, or not the marker's.")
        manifest = parse_record(data, Manifest, place / MANIFEST_NAME)
        make_directories(run_root)
        with staged_directory(run_root / name) as private:
            for file in manifest.files:
                self._get(name, file.path, private / file.path)
            (private / MANIFEST_NAME).write_bytes(data)
            (private / MARKER_NAME).write_bytes(marker_data)
            verify(private)
        return run_root / name

    def prune(self, *, keep_last: int, keep_every: int = 0) -> tuple[str, ...]:
        """Remove what retention does not keep, markers first; the names that went. The newest
        complete one always stays, and `keep_last` 0 keeps all."""
        older = self.listing().complete[:-keep_last] if keep_last > 0 else ()
        gone = tuple(name for name in older if not keep_every or _step(name) % keep_every)
        for name in gone:
            self._remove(name)
        return gone

    def _remove(self, name: str) -> None:
        def act() -> None:
            self._system.rm_file(f"{self._path}/{name}/{MARKER_NAME}")
            self._system.rm(f"{self._path}/{name}", recursive=True)

        self._ask(act, f"{self.address}/{name}")
        self._system.invalidate_cache()

    def _put(self, source: Path, name: str, path: str) -> None:
        there, size = f"{self._path}/{name}/{path}", source.stat().st_size

        def act() -> None:
            self._system.makedirs(there.rpartition("/")[0], exist_ok=True)
            self._system.put_file(str(source), there)
            self._system.invalidate_cache()
            stored = self._system.info(there)["size"]
            if stored != size:
                raise OSError(f"{size} bytes were written, the store has {stored}")

        self._ask(act, f"{self.address}/{name}/{path}")

    def _get(self, name: str, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        there = f"{self._path}/{name}/{path}"
        try:
            self._ask(lambda: self._system.get_file(there, str(target)), there)
        except FileNotFoundError:
            raise damaged(Path(name) / path, "The store does not have it.") from None

    def _read(self, name: str, path: str) -> bytes | None:
        there = f"{self._path}/{name}/{path}"
        try:
            return self._ask(lambda: cast("bytes", self._system.cat_file(there)), there)
        except FileNotFoundError:
            return None

    def _ask(self, act: Callable[[], Value], where: str) -> Value:
        """Do it, a failing store once more; `FileNotFoundError` is passed on."""
        for last in (False, True):
            try:
                return act()
            except (FileNotFoundError, SolarError):
                raise
            except PermissionError as fault:
                raise SolarError(
                    "store.denied", "the store refuses access", where=where, why=str(fault)[:200]
                ) from fault
            except Exception as fault:
                if last:
                    raise SolarError(
                        "store.no-answer",
                        "the store failed twice",
                        where=where,
                        why=f"{type(fault).__name__}: {fault}"[:200],
                    ) from fault
        raise AssertionError


def _step(name: str) -> int:
    step = step_of(name)
    assert step is not None
    return step
