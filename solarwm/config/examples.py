"""The example configs that ship with the package, from a checkout or an installed wheel."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex

_KNOWN = Path(__file__).with_name("examples.json")
"""What the shipped examples are, by the digest of their text; written by `make docs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example config."""

    name: str
    """`wan22_ti2v_5b/train_stage0p5_fm_81f`."""
    path: Path


def root() -> Path:
    """The folder of examples: that of the checkout when there is one, else the copy inside the package."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / "configs" / "examples"
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    from importlib.resources import files

    return Path(str(files("solarwm"))) / "_examples"


def every(folder: Path | None = None) -> list[Example]:
    """All examples, sorted by name."""
    base = folder or root()
    return [
        Example(name=path.relative_to(base).with_suffix("").as_posix(), path=path)
        for path in sorted(base.glob("*/*.yaml"))
    ]


def describe(example: Example) -> dict[str, Any]:
    """Action, route parts and profile of an example, read from its text."""
    from solarwm.config import loading

    values = loading.parse(example.path, example.path.read_bytes()).values
    model, train = values.get("model", {}), values.get("train", {})
    return {
        "action": values.get("action"),
        "family": model.get("family"),
        "stage": train.get("stage"),
        "objective": train.get("objective"),
        "profile": model.get("profile", "released"),
    }


def table() -> list[dict[str, Any]]:
    """Every example with its name, its path and what it is; only texts nobody described are parsed."""
    known: dict[str, dict[str, Any]] = json.loads(_KNOWN.read_bytes()) if _KNOWN.exists() else {}
    found: list[dict[str, Any]] = []
    for example in every():
        told = dict(known.get(example.name, {}))
        if told.pop("digest", None) != blake2s_hex(example.path.read_bytes()):
            told = describe(example)
        found.append({"name": example.name, "path": str(example.path), **told})
    return found


def find(name: str) -> Example:
    """The example called `name`: the full name, or the file name where it is unique; `.yaml` may follow."""
    wanted = name.removesuffix(".yaml").strip("/")
    examples = every()
    exact = [example for example in examples if example.name == wanted]
    loose = [example for example in examples if example.name.rpartition("/")[2] == wanted]
    found = exact or loose
    if len(found) == 1:
        return found[0]
    names = [example.name for example in examples]
    if found:
        close = [example.name for example in found]
    else:
        leaves = {item.rpartition("/")[2]: item for item in names}
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
        close += [
            leaves[leaf]
            for leaf in difflib.get_close_matches(wanted, list(leaves), n=2, cutoff=0.6)
        ]
    raise SolarError(
        "config.bad-example",
        "several examples have that name" if found else "no example has that name",
        fixes=[f"solarwm config show {item}" for item in dict.fromkeys(close)][:3]
        or ["solarwm config list"],
        context={"candidates": close},
    )
