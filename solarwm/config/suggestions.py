"""Where an unknown key probably belongs: a nearest name, the right section, or a known mistake."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from pydantic import BaseModel

from solarwm.config import synonyms
from solarwm.config.aliases import ALIASES
from solarwm.config.binding import fields

_REVERSED = {canonical: alias for alias, canonical in ALIASES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to say about an unknown key."""

    target: str
    """Dotted key that is probably meant; empty when nothing comes near."""
    misplaced: bool
    """The name is right, but it belongs elsewhere."""
    remark: str
    legal: tuple[str, ...]
    """Keys of the section the unknown key stands in."""


def suggest(model: type[BaseModel], section: str, key: str) -> Suggestion:
    """The best guess for `key` in the section with dotted name `section` (empty for the top level)."""
    known = [dotted for dotted, _ in fields(model)]
    prefix = f"{section}." if section else ""
    legal = tuple(
        sorted(
            dotted.removeprefix(prefix).removesuffix("[]")
            for dotted in known
            if dotted.startswith(prefix) and "." not in dotted.removeprefix(prefix)
        )
    )
    name = key.strip().replace("-", "_").lower()
    if name in legal:
        return Suggestion(target=f"{prefix}{name}", misplaced=False, remark="", legal=legal)
    group = synonyms.find(name)
    if group is not None:
        target = next((target for target in group.targets if target in known), "")
        if target or not group.targets:
            elsewhere = bool(target) and target.rpartition(".")[0] != section
            return Suggestion(target=target, misplaced=elsewhere, remark=group.remark, legal=legal)
    by_leaf: dict[str, list[str]] = {}
    for dotted in known:
        leaf = dotted.rpartition(".")[2]
        by_leaf.setdefault(leaf, []).append(dotted)
        if leaf in _REVERSED:
            by_leaf.setdefault(_REVERSED[leaf], []).append(dotted)
    if name in by_leaf:
        return Suggestion(
            target=_closest(by_leaf[name], section), misplaced=True, remark="", legal=legal
        )
    here = {leaf: f"{prefix}{leaf}" for leaf in legal}
    here |= {_REVERSED[leaf]: f"{prefix}{leaf}" for leaf in legal if leaf in _REVERSED}
    close = difflib.get_close_matches(name, list(here), n=1, cutoff=0.72)
    if close:
        return Suggestion(target=here[close[0]], misplaced=False, remark="", legal=legal)
    close = difflib.get_close_matches(name, list(by_leaf), n=1, cutoff=0.8)
    if close:
        return Suggestion(
            target=_closest(by_leaf[close[0]], section), misplaced=False, remark="", legal=legal
        )
    return Suggestion(target="", misplaced=False, remark="", legal=legal)


def _closest(candidates: list[str], section: str) -> str:
    head = section.partition(".")[0]
    inside = [dotted for dotted in candidates if dotted.startswith(f"{head}.")]
    return min(
        inside or candidates, key=lambda dotted: (dotted.count("."), candidates.index(dotted))
    )
