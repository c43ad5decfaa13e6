"""The example configs that ship with the package, from a checkout or an installed wheel."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from solarwm.errors.types import SolarError


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
