"""Names of tensors without what wrappers put around them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from solarwm.backbones.weight_files import plain_names
from solarwm.errors.types import SolarError


def without_wrappers(names: Iterable[str]) -> dict[str, str]:
    """Old names by plain ones: what wrappers put there is taken off, as every load does.

    Raises `weights.mixed-prefix` or `weights.duplicate` (exit 3).
    """
    plain, _ = plain_names(names, Path("the file"))
    return {short: name for name, short in plain.items()}


def changed(names: Iterable[str], *, strip: str | None, add: str) -> dict[str, str]:
    """Old names by new ones: `strip` is a prefix to take off (None: what wrappers put there), `add`
    one to put on. Raises `weights.mixed-prefix` or `weights.duplicate` (exit 3)."""
    if strip is None:
        found = without_wrappers(names)
    else:
        listed = list(names)
        lacking = [name for name in listed if not name.startswith(strip)]
        if lacking:
            raise SolarError(
                "weights.mixed-prefix",
                f"{len(lacking)} of {len(listed)} names do not begin with {strip!r}",
                where="--strip-prefix",
                why=f"such as {lacking[0]}",
            )
        found = _inverted({name: name.removeprefix(strip) for name in listed})
    return {add + new: old for new, old in found.items()}


def _inverted(plain: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for old, new in plain.items():
        if new in found:
            raise SolarError(
                "weights.duplicate",
                f"{found[new]} and {old} would both be {new}",
                where="--strip-prefix",
            )
        found[new] = old
    return found
