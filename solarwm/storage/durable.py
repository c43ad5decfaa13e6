"""Files and directories that exist whole or not at all, and stay once they exist."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Generator
from pathlib import Path

from solarwm.errors.types import SolarError
from solarwm.storage.operations import LOCAL, Bytes, FileSystem

PRIVATE_SUFFIX = ".partial"

_CODES: dict[int, tuple[str, str, str]] = {
    errno.ENOSPC: ("disk.full", "the disk is full", "Free space there, or use another disk."),
    errno.EDQUOT: ("disk.full", "the quota is used up", "Free space there, or use another disk."),
    errno.EFBIG: ("disk.full", "the file may not grow further", "Raise the limit (ulimit -f)."),
    errno.EIO: ("disk.io", "the disk reported an error", "Look at the system log of that disk."),
    errno.EROFS: ("disk.read-only", "it accepts no writes", "Choose a directory on another disk."),
    errno.EACCES: ("disk.denied", "permission was denied", "Get write access or use another path."),
    errno.EPERM: ("disk.denied", "it is not permitted", "Use another path, or change its owner."),
    errno.ENOENT: ("disk.failed", "a directory on the way is not there", "Make it: mkdir -p."),
    errno.ENOTDIR: ("disk.failed", "a part of the path is a file", "Use a path below directories."),
    errno.EISDIR: ("disk.failed", "a directory has that name", "Choose another file name."),
    errno.ENAMETOOLONG: ("disk.failed", "the name is too long", "Choose a shorter path."),
    errno.ELOOP: ("disk.failed", "symbolic links lead in a circle", "Mend the links."),
    errno.EMFILE: ("disk.failed", "too many files are open", "Raise the limit (ulimit -n)."),
    errno.ENFILE: ("disk.failed", "too many files are open here", "Close other programs."),
    errno.ESTALE: ("disk.failed", "the network directory is gone", "Mount it again."),
    errno.ETIMEDOUT: (
        "disk.failed",
        "the storage did not answer",
        "Look at its mount and network.",
    ),
}
_NOTHING_KNOWN = (
    "disk.failed",
    "the operating system refused",
    "Try the same by hand: touch a file there, then look at the mount (df) and the limits (ulimit -a).",
)
_NO_LINKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.EMLINK})


def _public(path: Path) -> Path:
    if not is_private_name(path.name):
        return path
    return path.with_name(path.name[1:].removesuffix(PRIVATE_SUFFIX).rpartition(".")[0])


def _free(path: Path) -> str:
    """`; 12.5 MiB are free in DIRECTORY`, or nothing where that cannot be told."""
    for directory in path.absolute().parents:
        with contextlib.suppress(OSError):
            return f"; {shutil.disk_usage(directory).free / 2**20:,.1f} MiB are free in {directory}"
    return ""


@contextlib.contextmanager
def storage_errors(path: Path) -> Generator[None]:
    """Turn an OSError inside into a `disk.*` SolarError (exit 5) about `path`.

    FileExistsError passes through unchanged: it is the answer of create-only writes, not a disk
    fault.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as fault:
        raise storage_fault(fault, path) from fault


def storage_fault(fault: OSError, path: Path) -> SolarError:
    """The `disk.*` error that tells a person what the operating system said about `path`.

    A private name on the way to `path` is told as the name a person gave.
    """
    code, why, fix = _CODES.get(fault.errno or 0, _NOTHING_KNOWN)
    place = os.fsdecode(fault.filename) if isinstance(fault.filename, str | bytes) else str(path)
    path, place = _public(path), str(_public(Path(place)))
    said = f"{why} ({errno.errorcode.get(fault.errno or 0, 'error')}: {fault.strerror or fault})"
    if code == "disk.full":
        said += _free(Path(place))
    return SolarError(
        code,
        f"cannot write {path.name or path}",
        where=place,
        why=said,
        fixes=[fix],
        context={"errno": fault.errno, "path": str(path)},
    )


def private_sibling(path: Path) -> Path:
    """A fresh hidden name beside `path`, on the same file system: `.NAME.<32 hex>.partial`."""
    return path.parent / f".{path.name}.{uuid.uuid4().hex}{PRIVATE_SUFFIX}"


def is_private_name(name: str) -> bool:
    """Whether `name` is one that `private_sibling` makes."""
    if not (name.startswith(".") and name.endswith(PRIVATE_SUFFIX)):
        return False
    token = name.removesuffix(PRIVATE_SUFFIX).rpartition(".")[2]
    return len(token) == 32 and all(letter in "0123456789abcdef" for letter in token)


def fsync_directory(path: Path, *, fs: FileSystem = LOCAL) -> None:
    """Return once the names in `path` are on the disk."""
    with storage_errors(path):
        fs.fsync_directory(path)


def make_directories(path: Path, *, fs: FileSystem = LOCAL) -> None:
    """Create `path` and its missing parents, each name synced; an existing directory is fine."""
    missing: list[Path] = []
    probe = path
    while not probe.is_dir() and probe != probe.parent:
        missing.append(probe)
        probe = probe.parent
    with storage_errors(path):
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                fs.make_directory(directory)
            fs.fsync_directory(directory.parent)


def write_new(path: Path, data: Bytes, *, fs: FileSystem = LOCAL) -> None:
    """Create `path` with `data`, synced; its name is not synced and a failure leaves a part behind.

    For files inside a private directory, which is removed or published as a whole.
    """
    with storage_errors(path):
        file = fs.create(path)
        try:
            file.write(data)
            file.fsync()
        finally:
            file.close()


def write_bytes_atomic(path: Path, data: Bytes, *, fs: FileSystem = LOCAL) -> None:
    """Put `data` at `path`, replacing a file there: readers see the old bytes or the new, also
    after a crash.
    """
    private = private_sibling(path)
    with storage_errors(path), _removed_on_failure(private, fs):
        write_new(private, data, fs=fs)
        fs.replace(private, path)
        fs.fsync_directory(path.parent)


def create_bytes(path: Path, data: Bytes, *, fs: FileSystem = LOCAL) -> None:
    """Put `data` at `path`, which must be free: FileExistsError otherwise, also when another
    process wins.
    """
    _require_free_name(path)
    private = private_sibling(path)
    with storage_errors(path), _removed_on_failure(private, fs):
        write_new(private, data, fs=fs)
        fs.publish_file(private, path)
        fs.fsync_directory(path.parent)


def link_create_only(source: Path, target: Path, *, fs: FileSystem = LOCAL) -> None:
    """Give the regular file `source` a second name `target`, which must be free; copies where
    links are missing.
    """
    if source.is_symlink() or not source.is_file():
        raise SolarError(
            "disk.failed",
            f"cannot publish {source.name}",
            where=str(source),
            why="Only a regular file that is not a symbolic link can be given a second name.",
        )
    _require_free_name(target)
    with storage_errors(target):
        try:
            fs.link(source, target)
        except OSError as fault:
            if fault.errno not in _NO_LINKS:
                raise
        else:
            fs.fsync_directory(target.parent)
            return
    _copy_create_only(source, target, fs)


@contextlib.contextmanager
def staged_directory(final: Path, *, fs: FileSystem = LOCAL) -> Generator[Path]:
    """Yield a private directory beside `final`; publish it there, synced, when the block succeeds.

    `final` must be free at the start and at the end (FileExistsError). Whatever was written into
    the private directory is synced file by file, then directory by directory. A failing block
    leaves nothing behind.
    """
    _require_free_name(final)
    private = private_sibling(final)
    with storage_errors(final):
        fs.make_directory(private)
    with _removed_on_failure(private, fs):
        yield private
        with storage_errors(final):
            sync_tree(private, fs=fs)
            fs.publish_directory(private, final)
            fs.fsync_directory(final.parent)


def sync_tree(root: Path, *, fs: FileSystem = LOCAL) -> None:
    """Sync every file under `root`, then every directory from the leaves up; refuses symbolic
    links.
    """
    for directory, _, names in os.walk(root, topdown=False):
        for name in sorted(names):
            path = Path(directory, name)
            if path.is_symlink():
                raise SolarError(
                    "disk.failed",
                    f"cannot publish {root.name}",
                    where=str(path),
                    why="A published directory may not hold symbolic links.",
                )
            fs.fsync_file(path)
        fs.fsync_directory(Path(directory))


def _copy_create_only(source: Path, target: Path, fs: FileSystem) -> None:
    private = private_sibling(target)
    with storage_errors(target), _removed_on_failure(private, fs):
        file = fs.create(private)
        try:
            with open(source, "rb") as reading:
                while block := reading.read(1 << 20):
                    file.write(block)
            file.fsync()
        finally:
            file.close()
        fs.publish_file(private, target)
        fs.fsync_directory(target.parent)


def _require_free_name(path: Path) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


@contextlib.contextmanager
def _removed_on_failure(private: Path, fs: FileSystem) -> Generator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if private.is_dir():
                fs.remove_tree(private)
            elif os.path.lexists(private):
                fs.unlink(private)
        raise
