"""The shapes of plain config values, for checks that also tell the type checker."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """True for a mapping; keys of a config are text once it is read."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """True for a list."""
    return isinstance(value, list)
