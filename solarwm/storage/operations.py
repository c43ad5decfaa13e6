"""The few file-system operations everything durable is made of, behind one Protocol.

Every durable write in the package goes through a `FileSystem`, so that a test can number the
operations, stop or fail at any one of them, and model a disk that loses what was never synced.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
PUBLICATION_LOCK_NAME = ".solarwm-publication.lock"
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_NO_LINKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.EMLINK})
_NO_SUCH_CALL = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


class WritableFile(Protocol):
    """A file being written, open since its creation."""

    def write(self, data: Bytes) -> int:
        """Append all of `data`; gives its size in bytes."""
        ...

    def fsync(self) -> None:
        """Return once the content is on the disk."""
        ...

    def close(self) -> None:
        """Give the descriptor back; nothing is synced."""
        ...


class FileSystem(Protocol):
    """Operations that change a disk; each call may fail on its own."""

    def make_directory(self, path: Path) -> None:
        """Create one directory; it must not exist."""
        ...

    def create(self, path: Path) -> WritableFile:
        """Create a file for writing; it must not exist and must not be a link."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename, replacing whatever file `target` is."""
        ...

    def publish_file(self, source: Path, target: Path) -> None:
        """Rename a file to a name that must be free (FileExistsError otherwise)."""
        ...

    def publish_directory(self, source: Path, target: Path) -> None:
        """Rename a directory to a name that must be free (FileExistsError otherwise)."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second, free name."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it."""
        ...

    def fsync_file(self, path: Path) -> None:
        """Return once the content of a file that somebody else wrote is on the disk."""
        ...

    def fsync_directory(self, path: Path) -> None:
        """Return once the names in a directory are on the disk."""
        ...


class LocalFile:
    """A `WritableFile` over a descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: Bytes) -> int:
        """Append all of `data`, however many short writes that takes; gives its size in bytes."""
        view = memoryview(data).cast("B")
        size = view.nbytes
        written = 0
        while written < size:
            count = os.write(self._descriptor, view[written:])
            if count == 0:
                raise OSError(errno.EIO, "the file system accepted no bytes")
            written += count
        return size

    def fsync(self) -> None:
        """Return once the content is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; closing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class LocalFileSystem:
    """The operating system's files.

    `links` and `exclusive_rename` say what may be tried; where the file system lacks both (network
    and FUSE mounts), names are published by a plain rename under a kernel lock on the parent
    directory.
    """

    __slots__ = ("_exclusive_rename", "_links")

    def __init__(self, *, links: bool = True, exclusive_rename: bool = True) -> None:
        self._links = links
        self._exclusive_rename = exclusive_rename

    def make_directory(self, path: Path) -> None:
        """Create one directory; it must not exist."""
        os.mkdir(path)

    def create(self, path: Path) -> WritableFile:
        """Create a file for writing; it must not exist and must not be a link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        return LocalFile(os.open(path, flags, 0o644))

    def replace(self, source: Path, target: Path) -> None:
        """Rename, replacing whatever file `target` is."""
        os.replace(source, target)

    def publish_file(self, source: Path, target: Path) -> None:
        """Rename a file to a free name: hard link and unlink, else an exclusive rename, else a
        locked one.
        """
        if self._links:
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError as fault:
                if fault.errno not in _NO_LINKS:
                    raise
            else:
                os.unlink(source)
                return
        self.publish_directory(source, target)

    def publish_directory(self, source: Path, target: Path) -> None:
        """Rename to a free name: exclusive rename where the kernel has it, else a locked one."""
        if self._exclusive_rename and _rename_exclusive(source, target):
            return
        with _publication_lock(target.parent):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second, free name; OSError where the file system has no hard links."""
        if not self._links:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(target))
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        os.unlink(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it; symbolic links inside are not followed."""
        shutil.rmtree(path)

    def fsync_file(self, path: Path) -> None:
        """Return once the content of a file that somebody else wrote is on the disk."""
        _fsync_path(path, os.O_RDONLY)

    def fsync_directory(self, path: Path) -> None:
        """Return once the names in a directory are on the disk; file systems that cannot are let
        pass.
        """
        try:
            _fsync_path(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        except OSError as fault:
            if fault.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
                raise


LOCAL: FileSystem = LocalFileSystem()


def _fsync_path(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_exclusive(source: Path, target: Path) -> bool:
    """True when the kernel renamed without replacing; False when it has no such call here."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    flag = ctypes.c_uint(_RENAME_NOREPLACE)
    status = rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag)
    if status == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_SUCH_CALL:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


@contextlib.contextmanager
def _publication_lock(directory: Path) -> Generator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(directory / PUBLICATION_LOCK_NAME, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
