"""Names of tensors without what wrappers put around them."""

from __future__ import annotations

from collections.abc import Iterable

from solarwm.errors.types import SolarError

INNER = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""Segments wrappers put anywhere into a name."""
OUTER = ("module.", "net.", "model.")
"""Prefixes of whole files, in any nesting."""


def without_wrappers(names: Iterable[str]) -> dict[str, str]:
    """The plain name of each: segments of `INNER` taken out, then `OUTER` prefixes that all share.

    Gives old names by new ones. Raises `weights.duplicate` (exit 3) when two become one.
    """
    plain = {name: ".".join(p for p in name.split(".") if p not in INNER) for name in names}
    while plain:
        shared = [p for p in OUTER if all(new.startswith(p) and new != p for new in plain.values())]
        if not shared:
            break
        plain = {old: new.removeprefix(shared[0]) for old, new in plain.items()}
    return _inverted(plain)


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
