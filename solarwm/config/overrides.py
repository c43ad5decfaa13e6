"""`--set KEY=VALUE` and `--set-file KEY=PATH`, applied in order on top of the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from solarwm.config.document import Document, Path, dotted
from solarwm.config.expansion import REFERENCE
from solarwm.config.plain import is_list, is_mapping
from solarwm.config.yaml_reader import Reading
from solarwm.errors.types import SolarError

_MAX_FILE_BYTES = 64 * 1024
_MARKED = frozenset("'\"|>&!")
"""First characters of a YAML text that says itself where it begins and ends."""


def apply(document: Document, overrides: Sequence[str], files: Sequence[str] = ()) -> None:
    """Write every override into the document; malformed ones become faults that name their ordinal.

    What a user typed is never repeated: it may hold a credential.
    """
    for number, text in enumerate(overrides, start=1):
        origin = f"--set #{number}"
        split = _split(document, text, origin)
        if split is None:
            continue
        path, raw = split
        try:
            value = _value(document, path, raw, origin)
        except SolarError as error:
            document.faults.append(error)
            continue
        if value is not _BAD:
            _write(document, path, value, origin)
    for number, text in enumerate(files, start=1):
        origin = f"--set-file #{number}"
        split = _split(document, text, origin)
        if split is None:
            continue
        path, name = split
        content = _file(document, path, name, origin)
        if content is not None:
            _write(document, path, content, origin)


_BAD: Any = object()


def _split(document: Document, text: str, origin: str) -> tuple[Path, str] | None:
    key, equals, value = text.partition("=")
    path = tuple(part for part in key.strip().split(".") if part)
    if not equals or not path:
        headline = "an override has no key" if equals else "an override has no `=`"
        document.fault(
            "config.set", (), headline, where=origin, fixes=["write --set section.key=VALUE"]
        )
        return None
    if not value:
        document.fault(
            "config.set",
            path,
            f"{dotted(path)} is set to nothing",
            where=origin,
            fixes=[
                f"--set {dotted(path)}=null to clear it",
                f"--set {dotted(path)}='\"\"' for empty text",
            ],
        )
        return None
    return path, value


def _value(document: Document, path: Path, raw: str, origin: str) -> Any:
    if REFERENCE.search(raw):
        document.fault(
            "config.set",
            path,
            f"{dotted(path)} is set to a text with ${{...}}, which is not expanded in overrides",
            where=origin,
            fixes=["let the shell expand it: use double quotes instead of single ones"],
        )
        return _BAD
    reading = Reading(origin, base=path)
    reading.read(raw)
    document.faults.extend(reading.faults)
    if reading.faults:
        return _BAD
    # YAML would cut a plain text at ` #`, trim it and fold its lines.
    plain = isinstance(reading.values, str) and raw.lstrip()[:1] not in _MARKED
    return raw if plain else reading.values


def _write(document: Document, path: Path, value: Any, origin: str) -> None:
    node: dict[str, Any] = document.values
    for depth, part in enumerate(path[:-1], start=1):
        inner: Any = node.get(str(part))
        if inner is None:
            inner = node[str(part)] = dict[str, Any]()
        if not is_mapping(inner):
            what = "a list; replace the whole list" if is_list(inner) else "a single value"
            document.fault(
                "config.set",
                path,
                f"{dotted(path)} cannot be set: {dotted(path[:depth])} is {what}",
                where=origin,
                fixes=[_whole(path[:depth], inner)],
            )
            return
        node = inner
    node[str(path[-1])] = value
    for known in [known for known in document.overridden if known[: len(path)] == path]:
        del document.overridden[known]
    document.overridden[path] = origin


def _whole(path: Path, value: Any) -> str:
    if is_list(value):
        return f"--set '{dotted(path)}=[...]' with every item, or edit the list in the file"
    return f"--set {dotted(path)}=VALUE"


def _file(document: Document, path: Path, name: str, origin: str) -> str | None:
    try:
        data = FilePath(name).read_bytes()
        if len(data) > _MAX_FILE_BYTES:
            raise ValueError("it is larger than 64 KiB")
        text = data.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError("it is binary")
    except (OSError, ValueError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "it is not text of at most 64 KiB"
        )
        document.fault(
            "config.set",
            path,
            f"the file for {dotted(path)} cannot be read",
            where=origin,
            why=reason or "bad path",
            fixes=[f"--set-file {dotted(path)}=PATH of a text file"],
        )
        return None
    return text.removesuffix("\n").removesuffix("\r")
