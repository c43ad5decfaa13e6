"""Reads the marks of the models: fills derived values, finds binding values that differ, notes
deviations."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from solarwm.config.finding import Finding
from solarwm.config.marks import UNKNOWN, Architecture, Facts, Format, Location, Mark, Recipe

Path = tuple[str | int, ...]


def _is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def key_of(name: str, info: FieldInfo) -> str:
    """The key of a field in a file."""
    return info.alias or name


def mark_of(info: FieldInfo) -> Mark | None:
    """The mark of a field, if it has one."""
    return next((item for item in info.metadata if isinstance(item, Mark)), None)


def location_of(info: FieldInfo) -> Location | None:
    """The `Location` of a field, if it holds a path."""
    return next((item for item in info.metadata if isinstance(item, Location)), None)


def nested(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section model inside an annotation, and whether it stands in a list of sections."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return nested(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        found = [nested(arm) for arm in get_args(annotation)]
        return next((item for item in found if item[0] is not None), (None, False))
    if origin is tuple:
        model, _ = nested(get_args(annotation)[0])
        return model, model is not None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    return None, False


def fields(model: type[BaseModel], *, path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field of a model tree with its dotted key; lists of sections show as `passes[]`."""
    for name, info in model.model_fields.items():
        dotted = f"{path}.{key_of(name, info)}" if path else key_of(name, info)
        yield dotted, info
        inner, many = nested(info.annotation)
        if inner is not None:
            yield from fields(inner, path=f"{dotted}[]" if many else dotted)


def locations(model: type[BaseModel]) -> dict[str, Location]:
    """Dotted keys of every path field of a model tree."""
    found = ((dotted, location_of(info)) for dotted, info in fields(model))
    return {dotted: location for dotted, location in found if location is not None}


def fill(model: type[BaseModel], plain: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """A copy of `plain` with every absent key added whose value is worked out from the facts.

    Absent sections are added only where something in them is worked out. Values of a wrong
    shape are left for validation to report.
    """
    result: dict[str, Any] = dict(plain)
    for name, info in model.model_fields.items():
        key = key_of(name, info)
        mark = mark_of(info)
        if key not in result and mark is not None and mark.by is not None:
            value = mark.expected(facts)
            if value is not UNKNOWN:
                result[key] = value
        inner, many = nested(info.annotation)
        if inner is None:
            continue
        value = result.get(key)
        if many and _is_list(value):
            result[key] = [
                fill(inner, item, facts) if _is_mapping(item) else item for item in value
            ]
        elif _is_mapping(value):
            result[key] = fill(inner, value, facts)
        elif key not in result and not many and _has_default_section(info):
            added = fill(inner, {}, facts)
            if added:
                result[key] = added
    return result


def same(left: Any, right: Any) -> bool:
    """Equality of config values: 1 equals 1.0, a list equals a tuple, a bool equals no number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if _is_list(left) and _is_list(right):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def binding_faults(model: type[BaseModel], plain: Mapping[str, Any], facts: Facts) -> list[Finding]:
    """Written values that contradict a format constant or the architecture of the profile."""
    found: list[Finding] = []
    for path, value, mark in _written(model, plain, ()):
        expected = mark.expected(facts)
        if expected is UNKNOWN or same(value, expected) or not _binds(mark, facts):
            continue
        found.append(_contradiction(path, value, expected, mark, facts))
    return found


def deviations(model: type[BaseModel], written: Mapping[str, Any], facts: Facts) -> list[str]:
    """One note for each written value that differs from the published recipe."""
    notes: list[str] = []
    for path, value, mark in _written(model, written, ()):
        expected = mark.expected(facts) if isinstance(mark, Recipe) else UNKNOWN
        if expected is not UNKNOWN and not same(value, expected):
            dotted = Finding(path=path, code="", message="").dotted
            notes.append(
                f"{dotted} is {_shown(value)}; the published recipe has {_shown(expected)}"
            )
    return notes


def _binds(mark: Mark, facts: Facts) -> bool:
    if isinstance(mark, Format):
        return True
    return isinstance(mark, Architecture) and (facts.released or not mark.adjustable)


def _has_default_section(info: FieldInfo) -> bool:
    if info.is_required():
        return True
    default = info.get_default(call_default_factory=False)
    return info.default_factory is not None or isinstance(default, BaseModel)


def _written(
    model: type[BaseModel], plain: Mapping[str, Any], path: Path
) -> Iterator[tuple[Path, Any, Mark]]:
    for name, info in model.model_fields.items():
        key = key_of(name, info)
        if key not in plain:
            continue
        value, here = plain[key], (*path, key)
        mark = mark_of(info)
        if mark is not None:
            yield here, value, mark
        inner, many = nested(info.annotation)
        if inner is not None and _is_mapping(value):
            yield from _written(inner, value, here)
        elif inner is not None and many and _is_list(value):
            for index, item in enumerate(value):
                if _is_mapping(item):
                    yield from _written(inner, item, (*here, index))


def _contradiction(path: Path, value: Any, expected: Any, mark: Mark, facts: Facts) -> Finding:
    kind = (
        "a format constant"
        if isinstance(mark, Format)
        else f"fixed by profile {facts.profile.name!r}"
    )
    dotted = Finding(path=path, code="", message="").dotted
    return Finding(
        path=path,
        code="config.binding-value",
        message=f"{dotted} must be {_shown(expected)}, not {_shown(value)}",
        why=mark.reason or f"the value is {kind} of {facts.spec.title}",
        fixes=(f"--set {dotted}={_shown(expected)}", f"leave {dotted} out: it is filled in"),
    )


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if _is_list(value):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value)
