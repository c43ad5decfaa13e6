"""JSON Schema of the run config, for editors that complete YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from solarwm.config.aliases import ALIASES
from solarwm.config.binding import nested
from solarwm.config.descriptions import describe
from solarwm.config.route import load
from solarwm.routes.compatibility import parse_key, require
from solarwm.routes.table import ROOMS, ROUTES, preencode_route

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run_models(key: str | None = None) -> list[type[BaseModel]]:
    """The run models of one route key, or of every route and every `preencode` action."""
    if key is not None:
        return [load(require(parse_key(key)).config_model)]
    rows = [*ROUTES, *(preencode_route(family) for family in ROOMS)]
    unique = dict.fromkeys(row.config_model for row in rows)
    return [load(reference) for reference in unique]


def json_schema(key: str | None = None) -> dict[str, Any]:
    """One JSON Schema for the files of a route, or of all routes together."""
    models = run_models(key)
    titles: dict[str, dict[str, str]] = {}
    for model in models:
        for section in _sections(model):
            titles[section.__name__] = describe(section)
    references, schema = models_json_schema([(model, "validation") for model in models])
    definitions: dict[str, Any] = schema.get("$defs", {})
    for name, definition in definitions.items():
        texts = titles.get(definition.get("title", name), {})
        properties = definition.get("properties", {})
        for field, text in texts.items():
            if field in properties and "description" not in properties[field]:
                properties[field] = {**properties[field], "description": text}
        for alias, canonical in ALIASES.items():
            if canonical in properties and alias not in properties:
                properties[alias] = {**properties[canonical], "deprecated": True}
    tops = [references[(model, "validation")] for model in models]
    body = tops[0] if len(tops) == 1 else {"anyOf": tops}
    return {"$schema": _DIALECT, "title": "solarwm.run.v1", **body, "$defs": definitions}


def _sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for info in model.model_fields.values():
        inner, _ = nested(info.annotation)
        if inner is not None:
            yield from _sections(inner)
