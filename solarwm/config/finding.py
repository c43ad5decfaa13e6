"""One thing found wrong in a config, before anybody knows which file and line it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault at a place in the config tree; the desk adds file and line and makes it a
    `SolarError`."""

    path: tuple[str | int, ...]
    """Keys from the root, as in `("validation", "passes", 0, "solver")`."""
    code: str
    """Key of the error catalogue."""
    message: str
    why: str = ""
    fixes: tuple[str, ...] = ()

    @property
    def dotted(self) -> str:
        """The path as people write it: `validation.passes[0].solver`."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text
