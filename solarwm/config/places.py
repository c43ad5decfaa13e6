"""Path fields of a config: placeholders that are still in use, and paths of a wrong form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from solarwm.config.binding import locations
from solarwm.config.document import Document, Path, dotted, get
from solarwm.config.marks import Location
from solarwm.config.plain import is_list, is_mapping

PLACEHOLDER = "/path/to/"


def placeholders(model: type[BaseModel], values: dict[str, Any], action: str) -> tuple[Path, ...]:
    """The path fields this action uses that still hold a path under `/path/to/`."""
    return tuple(path for path, text, _ in _used(model, values, action) if is_placeholder(text))


def is_placeholder(text: str) -> bool:
    """Whether a path stands for one the user has to give."""
    return text.startswith(PLACEHOLDER) or text == PLACEHOLDER.rstrip("/")


def check(document: Document, model: type[BaseModel], values: dict[str, Any], action: str) -> None:
    """Keep a fault for every relative path where an absolute one is needed."""
    for path, text, location in _used(model, values, action):
        if not location.absolute or text.startswith("/") or "://" in text or not text.strip():
            continue
        name = dotted(path)
        document.fault(
            "config.path",
            path,
            f"{name} must be an absolute path",
            why="ranks on other machines and later commands have other working directories",
            fixes=[f"--set {name}={os.path.abspath(os.path.expanduser(text))}"],
        )


def _used(
    model: type[BaseModel], values: dict[str, Any], action: str
) -> Iterator[tuple[Path, str, Location]]:
    small = get(values, "model", "profile") not in (None, "released")
    fresh = action == "train" and get(values, "checkpoint", "mode") == "none"
    for pattern, location in locations(model).items():
        if location.released_only and small:
            continue
        if location.actions is not None and action not in location.actions:
            continue
        if pattern == "checkpoint.path" and fresh:
            continue
        for path, value in _matches(values, pattern.split("."), ()):
            if isinstance(value, str):
                yield path, value, location


def _matches(values: Any, parts: list[str], path: Path) -> Iterator[tuple[Path, Any]]:
    if not parts:
        yield path, values
        return
    name, many = parts[0].removesuffix("[]"), parts[0].endswith("[]")
    if not is_mapping(values) or name not in values:
        return
    inner, here = values[name], (*path, name)
    if not many:
        yield from _matches(inner, parts[1:], here)
    elif is_list(inner):
        for index, item in enumerate(inner):
            yield from _matches(item, parts[1:], (*here, index))
