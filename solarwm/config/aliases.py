"""Published spellings that differ per family, and the one canonical spelling of each (Wan's leaf names)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from solarwm.config.binding import key_of, nested
from solarwm.config.document import Document, Path, dotted
from solarwm.config.plain import is_list, is_mapping

ALIASES: dict[str, str] = {
    "cache_mode": "self_gradient_forcing_cache_mode",
    "camera_translation_transform": "expected_camera_translation_transform",
    "consistency_ratio": "anyflow_consistency_ratio",
    "deltatime_type": "anyflow_deltatime_type",
    "diffusion_ratio": "anyflow_diffusion_ratio",
    "epsilon": "eps",
    "finite_difference_epsilon": "anyflow_epsilon",
    "gradient_accumulation_steps": "grad_accum",
    "gradient_clip": "grad_clip",
    "learning_rate": "lr",
    "match_context": "self_gradient_forcing_match_context",
    "max_camera_absolute_value": "max_camera_abs",
    "max_relative_translation": "max_rel_translation",
    "save_every_steps": "save_every",
    "sharding_strategy": "strategy",
    "update_every_steps": "update_every",
    "validate_every_steps": "validate_every",
    "weight_type": "anyflow_weight_type",
}
"""Published spelling -> canonical key, wherever a section has the canonical key."""


def rename(document: Document, model: type[BaseModel]) -> None:
    """Write canonical names wherever a section of `model` knows them; both names at once is a fault."""
    document.values = _section(document, document.values, model, ())


def _section(
    document: Document, values: dict[str, Any], model: type[BaseModel], path: Path
) -> dict[str, Any]:
    fields = {key_of(name, info): info for name, info in model.model_fields.items()}
    dropped: set[str] = set()
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = ALIASES.get(key, key)
        if key in fields or name not in fields:
            name = key
        if key in dropped:
            continue
        here, there = (*path, key), (*path, name)
        if name != key:
            if name in values:
                replaced = _settle(document, here, there, name)
                if not replaced:
                    continue
                result.pop(name, None)
                dropped.add(name)
            document.move(here, there)
        info = fields.get(name)
        inner, many = nested(info.annotation) if info is not None else (None, False)
        if inner is not None and is_mapping(value):
            value = _section(document, value, inner, there)
        elif inner is not None and many and is_list(value):
            value = [
                _section(document, item, inner, (*there, index)) if is_mapping(item) else item
                for index, item in enumerate(value)
            ]
        result[name] = value
    return result


def _settle(document: Document, here: Path, there: Path, name: str) -> bool:
    """True when the alias replaces the canonical key: an override is meant to win over the file."""
    alias_origin, canonical_origin = document.origin(here), document.origin(there)
    if alias_origin and not canonical_origin:
        return True
    if canonical_origin and not alias_origin:
        return False
    document.fault(
        "config.alias-conflict",
        here,
        f"{dotted(here)} and {dotted(there)} are one setting under two names",
        why=f"{name} is the canonical spelling; it stands at {document.place(there)}",
        fixes=[f"keep {dotted(there)} only"],
    )
    return False
