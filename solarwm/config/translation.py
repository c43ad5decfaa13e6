"""Turns what pydantic found into our faults: a place, a plain sentence, a fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from solarwm.config.document import Document, Path, dotted, get, shown
from solarwm.config.plain import is_list, is_mapping
from solarwm.errors.catalog import CATALOG

_EXPONENT_TEXT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
_DECIMAL = re.compile(r"([-+]?)0*([0-9]+(?:\.[0-9]+)?)")
_ON, _OFF = ("true", "yes", "on"), ("false", "no", "off")
_EXPECTED = {
    "bool": "true or false",
    "dict": "a mapping",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "literal": "one of the legal words",
    "mapping": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
    "none_required": "null",
    "string": "text",
    "tuple": "a list",
}
_ROUTE_KEYS = ("train.stage", "train.causal_mode", "train.objective", "train.objective_variant")
_CODE_BY_NAME = (
    "_target_",
    "_partial_",
    "_class_",
    "class_path",
    "provider_entrypoint",
    "import_path",
)


def validate(
    document: Document, model: type[BaseModel], values: dict[str, Any]
) -> BaseModel | None:
    """The typed config, or None with one fault in the document for everything that is wrong.

    Text such as `"1e-4"` on a number is taken as the number: YAML 1.1 readers hand it over as text.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    if _repair(values, errors):
        try:
            return model.model_validate(values)
        except ValidationError as error:
            errors = error.errors(include_url=False)
    told = {fault.context.get("path") for fault in document.faults}
    unrouted = any(fault.code == "route.unsupported" for fault in document.faults)
    for path, found in _by_path(values, errors).items():
        if dotted(path) in told or (unrouted and dotted(path) in _ROUTE_KEYS):
            continue
        _tell(document, model, values, path, found)
    return None


def _repair(values: dict[str, Any], errors: list[Any]) -> bool:
    repaired = False
    for error in errors:
        text = error["input"]
        if (
            error["type"] != "float_type"
            or not isinstance(text, str)
            or not _EXPONENT_TEXT.fullmatch(text)
        ):
            continue
        path = _written_path(values, error["loc"])
        parent = get(values, *path[:-1]) if len(path) > 1 else values
        number = float(text)
        if isinstance(parent, dict | list) and number not in (float("inf"), float("-inf")):
            parent[path[-1]] = number  # type: ignore[index]
            repaired = True
    return repaired


def _by_path(values: dict[str, Any], errors: list[Any]) -> dict[Path, list[Any]]:
    found: dict[Path, list[Any]] = {}
    for error in errors:
        found.setdefault(_written_path(values, error["loc"]), []).append(error)
    return found


def _written_path(values: Any, loc: tuple[str | int, ...]) -> Path:
    """The path in the file: pydantic adds names of union arms, which nobody wrote."""
    path: list[str | int] = []
    node: Any = values
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        following = get(node, part)
        if following is not None or (is_mapping(node) and part in node):
            node = following
        elif last and is_mapping(node) and isinstance(part, str) and "[" not in part:
            node = None
        else:
            continue
        path.append(part)
    return tuple(path)


def _tell(
    document: Document,
    model: type[BaseModel],
    values: dict[str, Any],
    path: Path,
    errors: list[Any],
) -> None:
    error = errors[0]
    kind = str(error["type"])
    context: Mapping[str, Any] = error.get("ctx") or {}
    name = dotted(path)
    if kind == "extra_forbidden":
        _unknown(document, model, path)
    elif kind == "missing":
        _missing(document, values, path)
    elif kind.startswith("config_"):
        code = kind.replace("_", ".", 1).replace("_", "-")
        fix = context.get("fix")
        document.fault(
            code if code in CATALOG else "config.value",
            path,
            f"{name}: {error['msg']}",
            why=str(context.get("why", "")),
            fixes=[str(fix)] if fix else (),
        )
    elif kind.removesuffix("_type") in _EXPECTED and (
        kind.endswith("_type") or kind == "none_required"
    ):
        names = [_EXPECTED.get(str(item["type"]).removesuffix("_type"), "") for item in errors]
        expected = " or ".join(dict.fromkeys(name for name in names if name)) or "another type"
        _wrong_type(document, path, expected, error["input"])
    elif kind == "int_from_float":
        _wrong_type(document, path, "a whole number", error["input"])
    else:
        _wrong_value(document, path, errors)


def _wrong_type(document: Document, path: Path, expected: str, value: Any) -> None:
    name = dotted(path)
    fixes: list[str] = []
    if isinstance(value, str):
        text = value.strip().lower()
        if expected == "true or false" and text in (*_ON, *_OFF):
            fixes.append(f"--set {name}={str(text in _ON).lower()}")
        elif expected in ("a number", "a whole number") and (found := _DECIMAL.fullmatch(text)):
            decimal = "".join(found.groups())
            fixes.append(f"--set {name}={decimal}")
    elif isinstance(value, float) and expected == "a whole number" and value.is_integer():
        fixes.append(f"--set {name}={int(value)}")
    elif expected == "text" and isinstance(value, bool | int | float):
        fixes.append(f"""--set '{name}="{shown(value)}"' if text is meant""")
    elif value is None:
        fixes.append(f"leave {name} out, or write --set {name}=VALUE")
    kind = "" if not isinstance(value, str) or shown(value) == "a text" else "the text "
    document.fault(
        "config.type",
        path,
        f"{name} must be {expected}, not {kind}{shown(value)}",
        fixes=fixes,
        expected=expected,
    )


def _wrong_value(document: Document, path: Path, errors: list[Any]) -> None:
    name, error = dotted(path), errors[0]
    context: dict[str, Any] = error.get("ctx") or {}
    kind, value = str(error["type"]), error["input"]
    fixes: list[str] = []
    limits = {
        "greater_than": ("gt", "greater than"),
        "greater_than_equal": ("ge", "at least"),
        "less_than": ("lt", "less than"),
        "less_than_equal": ("le", "at most"),
    }
    if kind in limits:
        key, words = limits[kind]
        rule = f"must be {words} {context[key]}"
        whole = isinstance(value, int) and isinstance(context[key], int)
        bound = context[key] + {"gt": 1, "lt": -1}.get(key, 0) if whole else context[key]
        fixes = [f"--set {name}={bound}"] if whole or key in ("ge", "le") else []
    elif kind in ("literal_error", "enum"):
        rule = f"must be {context.get('expected', 'one of the legal words')}"
        legal = re.findall(r"'([^']+)'", rule)
        meant = "off" if value is False and "off" in legal else str(value).lower()
        near = difflib.get_close_matches(meant, legal, n=1, cutoff=0.3) or legal[:1]
        fixes = [f"--set {name}={near[0]}"] if near and "[" not in name else []
    elif kind in ("too_short", "too_long"):
        bound = context.get("min_length", context.get("max_length"))
        rule = f"must have {'at least' if kind == 'too_short' else 'at most'} {bound} items"
    elif kind == "finite_number":
        rule = "must be finite"
    elif kind in ("value_error", "assertion_error"):
        rule = str(context.get("error", "is not legal"))
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        rule = f"must name one of {context.get('expected_tags', 'the legal kinds')}"
    else:
        rule = "is not legal"
    said = "" if isinstance(value, dict | list) else f", not {shown(value)}"
    code = "config.path" if "relative POSIX" in rule or "segments" in rule else "config.value"
    document.fault(code, path, f"{name} {rule}{said}", fixes=fixes, rule=rule)


def _missing(document: Document, values: dict[str, Any], path: Path) -> None:
    name = dotted(path)
    if is_list(get(values, *path)):
        document.fault(
            "config.value",
            path,
            f"{name} has too few items",
            fixes=[f"docs/reference/config.md tells how many {name} takes"],
        )
        return
    parent = path[:-1]
    where = document.place(parent) if parent else None
    clash = (
        "" if is_mapping(get(values, *parent)) or not parent else " (its section is not a mapping)"
    )
    document.fault(
        "config.missing-key",
        path,
        f"{name} is missing{clash}",
        where=where,
        fixes=[f"--set {name}=..."],
    )


def _unknown(document: Document, model: type[BaseModel], path: Path) -> None:
    key = str(path[-1])
    section = re.sub(r"\[[0-9]+\]", "[]", dotted(path[:-1]))
    place = f"the section {section}" if section else "the top level"
    if key in _CODE_BY_NAME:
        document.fault(
            "config.unsupported",
            path,
            f"{dotted(path)} would load code by name, which is not supported",
            why="a config is data: what runs is chosen by the route table alone",
            fixes=["remove the key"],
        )
        return
    from solarwm.config.suggestions import suggest

    found = suggest(model, section, key)
    home, _, leaf = found.target.rpartition(".")
    if found.misplaced:
        spelled = f", where it is called {leaf}" if leaf != key else ""
        document.fault(
            "config.misplaced-key",
            path,
            f"{key} is not a key of {place}; it belongs under {home or 'the top level'}{spelled}",
            why=found.remark,
            fixes=[f"write it as {found.target}"],
            suggestion=found.target,
        )
        return
    why = found.remark
    if not found.target and not why:
        why = (
            f"legal keys: {', '.join(found.legal)}" if found.legal else "this section takes no keys"
        )
    fixes = [f"did you mean {found.target}?"] if found.target else []
    document.fault(
        "config.unknown-key",
        path,
        f"{key} is not a key of {place}",
        why=why,
        fixes=fixes or ["remove the key"],
        suggestion=found.target,
    )
