"""`${NAME}` in the strings of a config file becomes the environment variable NAME."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from solarwm.config.document import Document, Path, dotted
from solarwm.config.plain import is_list, is_mapping
from solarwm.config.secrets import names_secret

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(document: Document, environ: Mapping[str, str]) -> None:
    """Replace references in place; unset or secret variables become faults of the document."""
    document.values = _expand(document, document.values, (), environ)


def _expand(document: Document, value: Any, path: Path, environ: Mapping[str, str]) -> Any:
    if is_mapping(value):
        return {key: _expand(document, item, (*path, key), environ) for key, item in value.items()}
    if is_list(value):
        return [
            _expand(document, item, (*path, index), environ) for index, item in enumerate(value)
        ]
    if not isinstance(value, str) or "${" not in value:
        return value

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if names_secret(name):
            document.fault(
                "config.secret",
                path,
                f"{dotted(path)} takes in ${{{name}}}, which names a secret",
                why="the resolved config is written into the run directory",
                fixes=["leave the key out: programs read that variable themselves"],
            )
            return ""
        if name not in environ:
            document.fault(
                "config.env-unset",
                path,
                f"{dotted(path)} needs the environment variable {name}, which is not set",
                fixes=[f"export {name}=..."],
            )
            return ""
        return environ[name]

    return REFERENCE.sub(put, value)
