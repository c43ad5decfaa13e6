"""Reads a config file: YAML, resolved JSON, or the envelope that `config resolve` prints."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from solarwm.config.document import Document, dotted
from solarwm.config.plain import is_list, is_mapping
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json

MAX_BYTES = 512 * 1024
ENVELOPE_SCHEMA = "solarwm.resolved.v1"


def read_bytes(path: Path) -> bytes:
    """The bytes of a config file; `config.file` where there is nothing fit to read."""
    try:
        if path.is_dir():
            raise _unreadable(path, "it is a directory")
        if path.exists() and not path.is_file():
            raise _unreadable(path, "it is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise _unreadable(path, f"it is larger than {MAX_BYTES} bytes")
        data = path.read_bytes()
    except FileNotFoundError:
        raise SolarError(
            "config.file",
            f"no config at {path}",
            where=str(path),
            fixes=["solarwm config list shows the configs that ship with the package"],
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "bad path"
        raise _unreadable(path, reason) from None
    if not data.strip():
        raise _unreadable(path, "it is empty")
    return data


def parse(path: Path, data: bytes) -> Document:
    """Plain values and their places; several faults may be kept in the document, one unreadable file raises."""
    text = _text(path, data)
    if path.suffix.lower() == ".json":
        document = _json(path, text)
    else:
        document = _yaml(path, text)
    return _unwrap(document)


def _text(path: Path, data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _unreadable(path, "it is UTF-16; save it as UTF-8")
    if b"\0" in data:
        raise _unreadable(path, f"it is binary: byte {data.index(0)} is NUL")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start} is not UTF-8") from None


def _yaml(path: Path, text: str) -> Document:
    from solarwm.config.yaml_reader import Reading

    reading = Reading(str(path))
    reading.read(text)
    document = Document(str(path), _root(path, reading.values, reading.faults), lines=reading.lines)
    document.faults.extend(reading.faults)
    return document


def _json(path: Path, text: str) -> Document:
    faults: list[SolarError] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in items:
            if key in result:
                faults.append(
                    SolarError(
                        "config.duplicate-key",
                        f"{key} is written twice in one object",
                        where=str(path),
                        fixes=["keep one of the two"],
                        context={"path": key},
                    )
                )
                continue
            result[key] = value
        return result

    def constant(_: str) -> float:
        faults.append(
            SolarError(
                "config.value",
                "NaN or infinity is not a config value",
                where=str(path),
                fixes=["write a finite number, or null where the field takes it"],
            )
        )
        return 0.0

    try:
        values = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise SolarError(
            "config.syntax",
            "the text is not valid JSON",
            where=f"{path}:{error.lineno}:{error.colno}",
            why=error.msg.split(":")[0],
        ) from None
    except (RecursionError, ValueError):
        raise SolarError(
            "config.too-complex", "the config is nested or sized beyond reason", where=str(path)
        ) from None
    document = Document(str(path), _root(path, values, faults))
    document.faults.extend(faults)
    _check_json(document, values, ())
    if document.faults:
        document.lines = _json_lines(path, text)
    return document


def _check_json(document: Document, value: Any, path: tuple[str | int, ...]) -> None:
    from solarwm.config.yaml_reader import MAX_DEPTH

    if len(path) > MAX_DEPTH:
        raise SolarError(
            "config.too-complex", "the config is nested beyond reason", where=document.source
        )
    if is_mapping(value):
        for key, item in value.items():
            _check_json(document, item, (*path, key))
    elif is_list(value):
        for index, item in enumerate(value):
            _check_json(document, item, (*path, index))
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int) and abs(value) >= 2**63:
        document.fault(
            "config.value",
            path,
            f"{dotted(path)} is too large a number",
            fixes=["write a number below 2**63"],
        )
    elif isinstance(value, float) and not math.isfinite(value):
        document.fault(
            "config.value",
            path,
            f"{dotted(path)} is not a finite number",
            fixes=["write a finite number, or null where the field takes it"],
        )
    elif isinstance(value, str) and (
        "\0" in value or any("\ud800" <= c <= "\udfff" for c in value)
    ):
        document.fault(
            "config.value",
            path,
            f"{dotted(path)} holds a character no file can carry",
            fixes=["remove NUL and lone surrogates from the text"],
        )


def locate(document: Document, path: Path, data: bytes) -> None:
    """Give a document read from JSON the lines of its keys; a good one is read without them."""
    if not document.lines and path.suffix.lower() == ".json":
        document.lines = _json_lines(path, _text(path, data))


def _json_lines(path: Path, text: str) -> dict[tuple[str | int, ...], tuple[int, int]]:
    from solarwm.config.yaml_reader import Reading

    reading = Reading(str(path))
    try:
        reading.read(text)
    except SolarError:
        return {}
    return reading.lines


def _root(path: Path, values: Any, faults: list[SolarError]) -> dict[str, Any]:
    if is_mapping(values):
        return values
    if faults:
        return {}
    raise SolarError(
        "config.type",
        "a config is a mapping of sections",
        where=f"{path}:1",
        why="the top level is empty"
        if values is None
        else f"the top level is a {type(values).__name__}",
        fixes=["start with `schema: solarwm.run.v1`"],
    )


def _unwrap(document: Document) -> Document:
    values = document.values
    if not (is_mapping(values.get("config")) and "resolved_digest" in values):
        return document
    inner = values["config"]
    digest = blake2s_hex(canonical_json(inner))
    if digest != values["resolved_digest"]:
        raise SolarError(
            "config.stale-digest",
            "the resolved config was changed after it was resolved",
            where=document.source,
            why=f"its config hashes to {digest[:16]}..., its resolved_digest says otherwise",
            fixes=["solarwm config resolve --config SOURCE --output " + document.source],
        )
    document.values = inner
    document.prefix = ("config",)
    return document


def _unreadable(path: Path, why: str) -> SolarError:
    return SolarError(
        "config.file",
        f"the config {path.name} cannot be read",
        where=str(path),
        why=why,
        fixes=["solarwm config copy NAME DIRECTORY writes a good one", "solarwm config list"],
    )
