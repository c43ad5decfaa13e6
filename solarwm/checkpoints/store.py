"""The checkpoints of one run: save, find, prove, load, thin out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from solarwm.checkpoints.directory import (
    Entry,
    Listing,
    checkpoint_name,
    removable,
    remove,
    scan,
)
from solarwm.checkpoints.manifest import (
    RUNTIME_NAME,
    STATE_NAME,
    FileEntry,
    Manifest,
    Verification,
    check_digest,
    damaged,
    parse_record,
    read_manifest,
    read_proven,
    verify,
)
from solarwm.checkpoints.ranks import Ranks
from solarwm.checkpoints.shard_reader import read_member, read_metadata
from solarwm.checkpoints.state import (
    CheckpointState,
    RoleState,
    StateRecord,
    members_of,
    require_fit,
)
from solarwm.checkpoints.transaction import Identity, SaveTransaction, already_there
from solarwm.runs.manifest import read_run_id
from solarwm.storage.durable import make_directories, storage_errors
from solarwm.storage.operations import LOCAL, FileSystem

Notice = Callable[[str, Mapping[str, object]], None]
_MAX_THREADS = 4


class CheckpointStore:
    """The checkpoints directly under `run_root`.

    `keep_last` and `keep_every` say what retention keeps after a successful save (0 = keep all);
    paths in `protected` (the resume source) are never removed. `run_id` tells this run's
    checkpoints from others that were copied here; without it the launch manifest tells. `notice`
    hears of removals and of removals that failed; these never stop a run. Only one process group
    may save at a time (the run lock sees to it). `num_threads` hash what is written and read (None:
    up to 4, by the cores).
    """

    def __init__(
        self,
        run_root: Path,
        *,
        keep_last: int = 0,
        keep_every: int = 0,
        run_id: str | None = None,
        protected: Iterable[Path] = (),
        notice: Notice | None = None,
        num_threads: int | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        self.run_root = Path(run_root)
        self._keep_last = keep_last
        self._keep_every = keep_every
        self._run_id = run_id
        self._protected = frozenset(Path(path).resolve() for path in protected)
        self._notice = notice
        self._num_threads = num_threads
        self._fs = fs

    def save(
        self, step: int, state: CheckpointState, *, group: dist.ProcessGroup | None = None
    ) -> Path:
        """Write `checkpoint_model_NNNNNN`, synced and proven by digests; gives its path on every
        rank.

        A collective of `group` (None: the default group, or this process alone without one). On
        failure nothing is published or removed, the private copy is deleted, and every rank raises:
        `disk.*` (exit 5) or `checkpoint.*`; ranks that were well raise `checkpoint.peer-failed`
        (exit 6).
        """
        ranks = Ranks(group)
        final = self.run_root / checkpoint_name(step)
        identity = ranks.lead(lambda: [self._next_identity(final)] * ranks.size)
        transaction = SaveTransaction(
            final,
            step,
            state,
            ranks=ranks,
            num_threads=self._threads(ranks),
            fs=self._fs,
        )
        transaction.run(identity)
        if ranks.leads:
            self._retain()
        return final

    def listing(self) -> Listing:
        """Complete checkpoints in the order of saving, partial ones, those of other runs,
        leftovers.
        """
        return scan(self.run_root, run_id=self._run_id)

    def list(self) -> tuple[Entry, ...]:
        """This run's complete checkpoints, in the order of saving."""
        return self.listing().complete

    def latest(self) -> Path | None:
        """The complete checkpoint of this run that was saved last; None when there is none."""
        newest = self.listing().newest
        return newest.path if newest is not None else None

    def verify(self, path: Path, *, deep: bool = True) -> Verification:
        """Prove marker, manifest and sizes, and with `deep` every digest; raises on any fault
        (exit 3).
        """
        return verify(path, deep=deep)

    def clear_leftovers(self) -> tuple[Path, ...]:
        """Remove the private directories of saves that never finished; gives what was removed.

        For the holder of the run lock only, at its start. Directories with a public name are left
        alone.
        """
        removed: list[Path] = []
        for path in self.listing().leftovers:
            if self._remove(path):
                removed.append(path)
        return tuple(removed)

    def load_into(
        self,
        path: Path,
        roles: Mapping[str, RoleState],
        *,
        group: dist.ProcessGroup | None = None,
        cast_dtypes: bool = False,
    ) -> StateRecord:
        """Fill the tensors of `roles` in place from the checkpoint at `path`; gives its
        `state.json`.

        A collective of `group`. Only the given parts are read, whatever world size saved them. All
        files of those parts are checked against their digests, the work shared between the ranks.
        On a fault (exit 3, see `require_fit`, `read_manifest`, `read_member`) every rank raises and
        the tensors are undefined. `cast_dtypes` allows targets in another dtype.
        """
        ranks = Ranks(group)
        members = members_of(roles)
        values = ranks.together(lambda: self._load(path, members, ranks, cast_dtypes))
        return values[0] if ranks.leads else self.record(path)

    def record(self, path: Path) -> StateRecord:
        """`state.json` of a complete checkpoint, proven by digest (exit 3 otherwise)."""
        return read_state(path, read_manifest(path))

    def rank_record(self, path: Path, world_rank: int) -> dict[str, Any] | None:
        """What rank `world_rank` recorded about itself, proven by digest; None when it recorded
        nothing.
        """
        manifest = read_manifest(path)
        name = f"{RUNTIME_NAME}/rank-{world_rank:05d}.json"
        return read_proven(path, manifest, name) if manifest.file(name) is not None else None

    def _load(
        self,
        path: Path,
        members: Mapping[str, Mapping[str, Tensor]],
        ranks: Ranks,
        cast_dtypes: bool,
    ) -> StateRecord:
        manifest = read_manifest(path)
        record = read_state(path, manifest)
        require_fit(str(path), manifest, members, cast=cast_dtypes)
        files = [file for name in members for file in manifest.files_under(name)]
        share = _share(files, ranks.index, ranks.size)
        with ThreadPoolExecutor(self._threads(ranks), "solarwm-verify") as pool:
            checks = [pool.submit(check_digest, path, file) for file in share]
            try:
                with torch.no_grad():
                    for name, tensors in members.items():
                        metadata = read_metadata(path, name, manifest)
                        read_member(path, name, metadata, tensors)
            except Exception:
                _raise_first(checks)
                raise
            _raise_first(checks)
        return record

    def _next_identity(self, final: Path) -> Identity:
        if final.exists() or final.is_symlink():
            self._set_aside(final)
        make_directories(self.run_root, fs=self._fs)
        listing = self.listing()
        known = [entry.save_index for entry in (*listing.complete, *listing.foreign)]
        return Identity(
            run_id=self._run_id or read_run_id(self.run_root) or "",
            save_index=max(known, default=0) + 1,
        )

    def _set_aside(self, final: Path) -> None:
        """Rename what has this checkpoint's name and is no usable one; a usable one is an error.

        Nothing is removed, and a run that went back past a damaged checkpoint can save again.
        """
        if not any(partial.path == final for partial in self.listing().partial):
            raise already_there(final)
        names = (f"{final.name}.unusable-{number}" for number in count(1))
        aside = next(path for path in map(final.with_name, names) if not os.path.lexists(path))
        with storage_errors(final):
            self._fs.publish_directory(final, aside)
            self._fs.fsync_directory(final.parent)
        self._tell("checkpoint_set_aside", {"path": str(final), "now": str(aside)})

    def _retain(self) -> None:
        entries = self.list()
        chosen = removable(
            entries,
            keep_last=self._keep_last,
            keep_every=self._keep_every,
            protected=self._protected,
        )
        for entry in chosen:
            if self._remove(entry.path):
                self._tell("checkpoint_removed", {"step": entry.step, "path": str(entry.path)})

    def _remove(self, path: Path) -> bool:
        try:
            remove(path, fs=self._fs)
        except OSError as fault:
            told = {"path": str(path), "error": fault.strerror or str(fault)}
            self._tell("checkpoint_removal_failed", told)
            return False
        return True

    def _threads(self, ranks: Ranks) -> int:
        if self._num_threads is not None:
            return self._num_threads
        return max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // ranks.size))

    def _tell(self, event: str, fields: Mapping[str, object]) -> None:
        if self._notice is not None:
            self._notice(event, fields)


def read_state(path: Path, manifest: Manifest) -> StateRecord:
    """`state.json`, proven against `manifest` (`checkpoint.damaged`, exit 3, otherwise)."""
    entry = manifest.file(STATE_NAME)
    place = path / STATE_NAME
    if entry is None:
        raise damaged(place, "The manifest does not list it.")
    check_digest(path, entry)
    record = parse_record(place.read_bytes(), StateRecord, place)
    if record.step != manifest.step:
        raise damaged(place, f"It says step {record.step}, the manifest step {manifest.step}.")
    return record


def _share(files: list[FileEntry], index: int, size: int) -> list[FileEntry]:
    """This rank's part of the files to prove: largest first, dealt out in turn."""
    return sorted(files, key=lambda file: (-file.size, file.path))[index::size]


def _raise_first(checks: list[Future[None]]) -> None:
    for check in checks:
        check.result()
