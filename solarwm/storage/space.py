"""How much room a disk has, asked before writing."""

from __future__ import annotations

import os
from pathlib import Path

from solarwm.errors.types import SolarError

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write where `path` is or will be (its nearest existing
    parent).
    """
    probe = Path(os.path.abspath(path))
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    figures = os.statvfs(probe)
    return figures.f_bavail * figures.f_frsize


def require_free(path: Path, need_bytes: int) -> None:
    """Raise `disk.full` (exit 5) with both figures unless `need_bytes` fit where `path` is or will
    be.
    """
    free = free_bytes(path)
    if free < need_bytes:
        raise SolarError(
            "disk.full",
            "not enough free disk space",
            where=str(path),
            why=f"{format_bytes(need_bytes)} are needed, {format_bytes(free)} are free.",
            fixes=["Free space on that disk.", "Write elsewhere (--set runtime.output_dir=...)."],
            context={"need_bytes": need_bytes, "free_bytes": free},
        )


def format_bytes(count: int) -> str:
    """`count` bytes in the largest unit that keeps the figure at 1 or more."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"
