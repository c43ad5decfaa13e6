"""The checkpoints of a run directory: which are complete, which is newest, what was left behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from solarwm.checkpoints.manifest import Manifest, check_sizes, read_manifest
from solarwm.errors.types import SolarError
from solarwm.runs.manifest import read_run_id
from solarwm.storage.durable import is_private_name, private_sibling, storage_errors
from solarwm.storage.operations import LOCAL, FileSystem

_NAME = re.compile(r"^checkpoint_model_([0-9]{6,})$")
_PREFIX = "checkpoint_model_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One complete checkpoint."""

    path: Path
    step: int
    save_index: int
    run_id: str
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A directory with a checkpoint's name that is not a usable checkpoint, and why."""

    path: Path
    fault: SolarError


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a look into a run directory found.

    `complete` is in the order of saving, newest last. `foreign` are complete ones of another run,
    `partial` lack their marker or a file, `leftovers` are private directories of saves that never
    finished. Names that are not ours appear nowhere.
    """

    complete: tuple[Entry, ...]
    foreign: tuple[Entry, ...]
    partial: tuple[Partial, ...]
    leftovers: tuple[Path, ...]

    @property
    def newest(self) -> Entry | None:
        """The complete checkpoint that was saved last; its step may be lower than a stale one's."""
        return self.complete[-1] if self.complete else None


def checkpoint_name(step: int) -> str:
    """The directory name of the checkpoint after `step` optimizer steps."""
    return f"{_PREFIX}{step:06d}"


def step_of(name: str) -> int | None:
    """The step in a checkpoint's directory name; None when it is no such name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    step = int(match.group(1))
    return step if checkpoint_name(step) == name else None


def scan(run_root: Path, *, run_id: str | None = None) -> Listing:
    """List the checkpoints in `run_root` by markers, manifests and sizes; content is not read.

    Complete checkpoints of another run are set apart. The run is `run_id`, else the one in the
    launch manifest there; without any, all count as this run's own.
    """
    run_id = run_id or read_run_id(run_root)
    complete: list[Entry] = []
    foreign: list[Entry] = []
    partial: list[Partial] = []
    leftovers: list[Path] = []
    if not run_root.is_dir():
        return Listing(complete=(), foreign=(), partial=(), leftovers=())
    for path in sorted(run_root.iterdir()):
        if is_private_name(path.name) and path.name.startswith(f".{_PREFIX}") and path.is_dir():
            leftovers.append(path)
            continue
        step = step_of(path.name)
        if step is None or not path.is_dir():
            continue
        try:
            entry = _entry(path, step)
        except SolarError as fault:
            partial.append(Partial(path=path, fault=fault))
            continue
        mine = run_id is None or entry.run_id in {run_id, ""}
        (complete if mine else foreign).append(entry)
    return Listing(
        complete=_in_order(complete),
        foreign=_in_order(foreign),
        partial=tuple(partial),
        leftovers=tuple(leftovers),
    )


def find(place: Path) -> Path:
    """The checkpoint meant by `place`: itself, or the newest complete one of the run it names.

    Raises `checkpoint.missing` (exit 3) when a run has none.
    """
    if step_of(place.name) is not None or (place / "COMPLETE.json").exists():
        return place
    newest = scan(place).newest
    if newest is None:
        raise SolarError(
            "checkpoint.missing",
            "there is no complete checkpoint",
            where=str(place),
            fixes=[
                "Name a checkpoint_model_NNNNNN directory, or the directory of a run that has one."
            ],
        )
    return newest.path


def removable(
    entries: Sequence[Entry], *, keep_last: int, keep_every: int, protected: frozenset[Path]
) -> tuple[Entry, ...]:
    """The entries that retention may remove, oldest first; `entries` in the order of saving.

    Kept: the `keep_last` saved last (0 keeps all), steps divisible by `keep_every` (0 adds none),
    and whatever is in `protected` (resolved paths).
    """
    if keep_last <= 0:
        return ()
    return tuple(
        entry
        for entry in entries[:-keep_last]
        if not (keep_every > 0 and entry.step % keep_every == 0)
        and entry.path.resolve() not in protected
    )


def remove(path: Path, *, fs: FileSystem = LOCAL) -> None:
    """Remove a checkpoint or leftover: first renamed to a private name, so that a removal cut short
    never looks like a checkpoint. Raises OSError."""
    private = path
    if not is_private_name(path.name):
        private = private_sibling(path)
        fs.publish_directory(path, private)
        fs.fsync_directory(path.parent)
    fs.remove_tree(private)


def prune(
    run_root: Path, *, keep_last: int, keep_every: int, dry_run: bool = False
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Remove this run's older checkpoints by the rule of `removable`; gives (kept, removed).

    The newest is proven by every digest before anything goes. Checkpoints of other runs, partial ones
    and other names are left alone. Takes the run's lock: raises `run.directory-busy` (exit 2) while it
    runs, `checkpoint.*` (exit 3) when the newest is not sound or there is none.
    """
    from solarwm.checkpoints.manifest import verify
    from solarwm.storage.locks import DirectoryLock

    newest = find(run_root)
    lock = DirectoryLock(run_root).acquire()
    try:
        entries = scan(run_root).complete
        chosen = removable(
            entries, keep_last=keep_last, keep_every=keep_every, protected=frozenset()
        )
        if chosen and not dry_run:
            verify(newest, deep=True)
            for entry in chosen:
                with storage_errors(entry.path):
                    remove(entry.path)
        kept = tuple(entry for entry in entries if entry not in chosen)
        return kept, chosen
    finally:
        lock.release()


def _entry(path: Path, step: int) -> Entry:
    if path.is_symlink():
        raise SolarError(
            "checkpoint.unsafe", "a checkpoint may not be a symbolic link", where=str(path)
        )
    manifest = read_manifest(path)
    if manifest.step != step:
        raise SolarError(
            "checkpoint.damaged",
            "the checkpoint's name and content differ",
            where=str(path),
            why=f"It was saved at step {manifest.step}.",
        )
    check_sizes(path, manifest)
    return Entry(
        path=path,
        step=step,
        save_index=manifest.save_index,
        run_id=manifest.run_id,
        manifest=manifest,
    )


def _in_order(entries: list[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.save_index, entry.step)))
