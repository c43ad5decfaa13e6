"""Tables the program reads instead of importing itself: shell completion, and what the examples are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
ARGUMENTS = {
    "config copy": "example",
    "config routes": "route",
    "config schema": "route",
    "config show": "example",
    "explain": "code",
}
"""What the first argument of a command is, where it is no file."""
OPTIONS = {"--resume": "resume", "--route": "route", "--set": "key", "--set-file": "key"}


def tables() -> dict[Path, str]:
    """Path and text of every table."""
    package = REPOSITORY / "solarwm"
    return {
        package / "cli" / "completion.json": _json(completion()),
        package / "config" / "examples.json": _json(examples()),
    }


def completion() -> dict[str, Any]:
    """Commands with their options, and the words that options and arguments take."""
    from solarwm.cli.lazy import build
    from solarwm.config.examples import every
    from solarwm.errors.catalog import CATALOG
    from solarwm.routes.table import keys

    commands: dict[str, Any] = {}
    _walk("", build(), commands)
    words = {
        "code": sorted(CATALOG),
        "example": [example.name for example in every()],
        "key": [f"{key}=" for key in _config_keys()],
        "resume": ["latest"],
        "route": keys(),
    }
    return {"commands": commands, "words": words}


def examples() -> dict[str, Any]:
    """What each shipped example is, with the digest of the text this was read from."""
    from solarwm.config.examples import describe, every
    from solarwm.storage.digests import blake2s_hex

    return {
        item.name: {"digest": blake2s_hex(item.path.read_bytes()), **describe(item)}
        for item in every()
    }


def _walk(path: str, command: Any, commands: dict[str, Any]) -> None:
    from solarwm.cli.commands import COMMANDS
    from solarwm.cli.lazy import load

    children = dict(getattr(command, "commands", None) or {})
    commands[path] = {
        "commands": {name: _first_line(child.help) for name, child in children.items()},
        "options": _options(command),
        "argument": ARGUMENTS.get(path, "file"),
    }
    for name, child in children.items():
        _walk(
            f"{path} {name}".strip(),
            load(name) if not path and name in COMMANDS else child,
            commands,
        )


def _options(command: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameter in command.params:
        if parameter.param_type_name != "option" or getattr(parameter, "hidden", False):
            continue
        flag = getattr(parameter, "is_flag", False) or getattr(parameter, "count", False)
        for name in [*parameter.opts, *getattr(parameter, "secondary_opts", ())]:
            if name.startswith("--"):
                takes = "" if flag else OPTIONS.get(name, "file")
                found[name] = {"help": _first_line(parameter.help), "takes": takes}
    return found | {"--help": {"help": "Show this message and exit.", "takes": ""}}


def _config_keys() -> list[str]:
    from solarwm.config.binding import fields, nested
    from solarwm.config.schema import run_models

    found: set[str] = set()
    for model in run_models():
        for dotted, info in fields(model):
            section, many = nested(info.annotation)
            if "[]" not in dotted and (section is None or many):
                found.add(dotted)
    return sorted(found)


def _first_line(text: str | None) -> str:
    plain = re.sub(r"\s+", " ", re.sub(r"\[/?[a-z ]+\]", "", text or "")).strip()
    return re.split(r"(?<=[.;]) ", plain)[0].rstrip(";")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
