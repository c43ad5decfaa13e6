"""A config on its way to being checked: plain values, and where each of them was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from solarwm.config.finding import Finding
from solarwm.config.plain import is_list, is_mapping
from solarwm.errors.types import SolarError

Path = tuple[str | int, ...]

_WORDY = re.compile(r"[A-Za-z0-9_.:/+ ,<>=()\[\]-]{0,48}")
_TOKEN_LIKE = re.compile(
    r"(?=[A-Za-z0-9_+=-]*[0-9])(?=[A-Za-z0-9_+=-]*[A-Za-z])[A-Za-z0-9+=-]{16,}"
)


@dataclass(slots=True)
class Document:
    """Values of one config file with the places they come from; filled by loading and overrides."""

    source: str
    """The file as the user named it."""
    values: dict[str, Any]
    lines: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])
    """Line and column (from 1) of each key and list item of the file."""
    prefix: Path = ()
    """Where `values` stands in the file: `("config",)` in an envelope."""
    overridden: dict[Path, str] = field(default_factory=dict[Path, str])
    """`--set #N` for each path an override wrote."""
    faults: list[SolarError] = field(default_factory=list[SolarError])

    def place(self, path: Path) -> str:
        """`--set #2`, or `file:line:column` of the nearest written ancestor of `path`, or the file.

        A section that is not in the file stands where the first override made it.
        """
        origin = self.origin(path)
        if origin is None and (*self.prefix, *path) not in self.lines:
            made = (item for known, item in self.overridden.items() if known[: len(path)] == path)
            origin = next(made, None) if path else None
        if origin is not None:
            return origin
        for length in range(len(path), 0, -1):
            mark = self.lines.get((*self.prefix, *path[:length]))
            if mark is not None:
                return f"{self.source}:{mark[0]}:{mark[1]}"
        return self.source

    def fault(
        self,
        code: str,
        path: Path,
        headline: str,
        *,
        why: str = "",
        fixes: Sequence[str] = (),
        where: str | None = None,
        **context: object,
    ) -> None:
        """Keep one fault at `path`; all are raised together later."""
        self.faults.append(
            SolarError(
                code,
                headline,
                where=where or self.place(path),
                why=why,
                fixes=fixes,
                context={"path": dotted(path), **context},
            )
        )

    def origin(self, path: Path) -> str | None:
        """`--set #2` when `path` or a part above it was written by an override, else None."""
        for length in range(len(path), 0, -1):
            found = self.overridden.get(path[:length])
            if found is not None:
                return found
        return None

    def move(self, old: Path, new: Path) -> None:
        """Let `new` stand at the place of `old`: a key was renamed."""
        lines = self.lines.get((*self.prefix, *old))
        if lines is not None:
            self.lines[(*self.prefix, *new)] = lines
        if old in self.overridden:
            self.overridden[new] = self.overridden[old]

    def find(self, finding: Finding) -> None:
        """Keep a finding of the models as a fault with its place."""
        self.fault(
            finding.code, finding.path, finding.message, why=finding.why, fixes=finding.fixes
        )


def dotted(path: Path) -> str:
    """`validation.passes[0].solver`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def get(values: Any, *path: str | int) -> Any:
    """The value at a path of plain values, or None where a part is missing."""
    for part in path:
        if is_mapping(values):
            values = values.get(str(part))
        elif is_list(values) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return None
    return values


def shown(value: object) -> str:
    """A value fit for an error text: numbers and short plain words as they are, anything else by its kind.

    A text that could be a credential is never repeated.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value) if len(repr(value)) <= 40 else "a number"
    if isinstance(value, str):
        if _WORDY.fullmatch(value) and not _TOKEN_LIKE.search(value) and "://" not in value:
            return f'"{value}"'
        return "a text"
    if is_mapping(value):
        return "a mapping"
    if is_list(value):
        return f"a list of {len(value)}"
    return f"a {type(value).__name__}"
