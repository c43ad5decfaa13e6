"""A disk that numbers its operations, can fail or stop at any of them, and forgets what was not synced.

It works on real files. `crash` then leaves what a machine could find after losing power: a name lives only
when its directory was synced after it was made, content only when the file was synced after it was written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from solarwm.storage.operations import LOCAL, WritableFile


class Stopped(BaseException):
    """The process ended here."""


@dataclass
class _Content:
    path: Path
    born: int
    size: int = 0
    synced: int = 0


@dataclass
class _Change:
    number: int
    directory: Path
    undo: Callable[[], None]
    move: tuple[Path, Path] | None = None


@dataclass
class ModelDisk:
    """A `FileSystem` over real files; `trace` lists the operations by number, starting at 0."""

    stop_before: int | None = None
    stop_after: int | None = None
    fail_at: int | None = None
    errno: int = 0
    keeps_failing: bool = False
    trace: list[str] = field(default_factory=list)
    dead: bool = False
    _contents: list[_Content] = field(default_factory=list)
    _changes: list[_Change] = field(default_factory=list)
    _moves: list[tuple[int, Path, Path]] = field(default_factory=list)
    _trash: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="model-disk-")))

    def step(self, name: str, path: Path, action: Callable[[], object]) -> None:
        number = len(self.trace)
        if self.dead or number == self.stop_before:
            self.dead = True
            raise Stopped
        self.trace.append(f"{name} {path.name}")
        if number == self.fail_at or (
            self.keeps_failing
            and self.fail_at is not None
            and number > self.fail_at
            and name in {"write", "create", "make_directory"}
        ):
            raise OSError(self.errno, os.strerror(self.errno), str(path))
        action()
        if number == self.stop_after:
            self.dead = True
            raise Stopped

    def make_directory(self, path: Path) -> None:
        self.step("make_directory", path, lambda: self._make_directory(path))

    def create(self, path: Path) -> WritableFile:
        opened: list[_ModelFile] = []
        self.step("create", path, lambda: opened.append(self._create(path)))
        return opened[0]

    def replace(self, source: Path, target: Path) -> None:
        self.step("replace", target, lambda: self._rename(source, target, LOCAL.replace))

    def publish_file(self, source: Path, target: Path) -> None:
        self.step("publish_file", target, lambda: self._rename(source, target, LOCAL.publish_file))

    def publish_directory(self, source: Path, target: Path) -> None:
        self.step(
            "publish_directory",
            target,
            lambda: self._rename(source, target, LOCAL.publish_directory),
        )

    def link(self, source: Path, target: Path) -> None:
        def act() -> None:
            LOCAL.link(source, target)
            self._change(target.parent, lambda: os.unlink(target))

        self.step("link", target, act)

    def unlink(self, path: Path) -> None:
        self.step("unlink", path, lambda: self._discard(path))

    def remove_tree(self, path: Path) -> None:
        self.step("remove_tree", path, lambda: self._discard(path))

    def fsync_file(self, path: Path) -> None:
        def act() -> None:
            for content in self._contents:
                if self._now(content.path, content.born) == path:
                    content.synced = content.size

        self.step("fsync_file", path, act)

    def fsync_directory(self, path: Path) -> None:
        def act() -> None:
            self._changes = [
                change
                for change in self._changes
                if self._now(change.directory, change.number) != path
            ]

        self.step("fsync_directory", path, act)

    def crash(self, mode: str) -> None:
        """Leave what survives: `keep` everything, `drop` what was unsynced, or `tear` content only."""
        if mode == "drop":
            for change in reversed(self._changes):
                change.undo()
                if change.move is not None:
                    self._moves.remove((change.number, *change.move))
        if mode in {"drop", "tear"}:
            for content in self._contents:
                path = self._now(content.path, content.born)
                if content.synced < content.size and path.is_file():
                    os.truncate(path, content.synced)
                    if mode == "tear":
                        os.truncate(path, content.size)
        shutil.rmtree(self._trash)

    def _make_directory(self, path: Path) -> None:
        LOCAL.make_directory(path)
        self._change(path.parent, lambda: shutil.rmtree(path))

    def _create(self, path: Path) -> _ModelFile:
        file = LOCAL.create(path)
        content = _Content(path, len(self.trace))
        self._contents.append(content)
        self._change(path.parent, lambda: os.unlink(path))
        return _ModelFile(self, file, content)

    def _rename(self, source: Path, target: Path, rename: Callable[[Path, Path], None]) -> None:
        old = target.read_bytes() if target.is_file() else None
        rename(source, target)

        def undo() -> None:
            os.rename(target, source)
            if old is not None:
                target.write_bytes(old)

        self._change(target.parent, undo, (source, target))
        self._moves.append((len(self.trace), source, target))

    def _discard(self, path: Path) -> None:
        kept = self._trash / str(len(self.trace))
        shutil.move(path, kept)
        self._change(path.parent, lambda: shutil.move(kept, path))

    def _change(
        self, directory: Path, undo: Callable[[], object], move: tuple[Path, Path] | None = None
    ) -> None:
        self._changes.append(_Change(len(self.trace), directory, lambda: void(undo()), move))

    def _now(self, path: Path, since: int) -> Path:
        for number, source, target in self._moves:
            if number > since and path.is_relative_to(source):
                path = target / path.relative_to(source)
        return path


class _ModelFile:
    def __init__(self, disk: ModelDisk, file: WritableFile, content: _Content) -> None:
        self._disk = disk
        self._file = file
        self._content = content

    def write(self, data: bytes | bytearray | memoryview) -> int:
        def act() -> None:
            self._content.size += self._file.write(data)

        self._disk.step("write", self._content.path, act)
        return memoryview(data).nbytes

    def fsync(self) -> None:
        def act() -> None:
            self._content.synced = self._content.size

        self._disk.step("fsync", self._content.path, act)

    def close(self) -> None:
        self._file.close()


class WithoutDirectorySync(ModelDisk):
    """The same for a store that forgets to sync directories."""

    def fsync_directory(self, path: Path) -> None:
        self.step("(no fsync_directory)", path, lambda: None)


class WithoutFileSync(ModelDisk):
    """The same for a store that forgets to sync files."""

    def create(self, path: Path) -> WritableFile:
        file = super().create(path)
        file.fsync = lambda: None  # type: ignore[method-assign]
        return file


def void(_: object) -> None:
    """Nothing, whatever it is given."""
