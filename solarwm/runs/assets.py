"""The local files and directories a config names for its action, and whether they are there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solarwm.config.places import is_placeholder
from solarwm.errors.types import FaultList, SolarError

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One path of a config."""

    key: str
    path: str
    present: bool


def named(resolved: ResolvedRun) -> tuple[Asset, ...]:
    """What the model, checkpoint and transport sections name, in this order."""
    canonical = resolved.canonical
    places = {**_model(canonical), **_checkpoint(canonical), **_transport(canonical)}
    return tuple(
        Asset(key=key, path=place, present=not is_placeholder(place) and os.path.exists(place))
        for key, place in places.items()
    )


def require(resolved: ResolvedRun) -> None:
    """Refuse (exit 3) a config that names a path which does not exist; placeholders are told elsewhere."""
    faults = [
        SolarError(
            "assets.missing",
            f"{asset.key} names a path that does not exist",
            where=asset.path,
            fixes=[f"--set {asset.key}=..."],
            context={"path": asset.key},
        )
        for asset in named(resolved)
        if not asset.present and not is_placeholder(asset.path)
    ]
    if faults:
        raise FaultList(faults)


def _model(canonical: Mapping[str, Any]) -> dict[str, str]:
    model: Mapping[str, Any] = canonical.get("model", {})
    base = model.get("base_path")
    found: dict[str, str] = {"model.base_path": base} if base else {}
    assets: Mapping[str, str | None] = model.get("assets") or {}
    for key, value in assets.items():
        if value and value != "builtin":
            place = value if os.path.isabs(value) or not base else os.path.join(base, value)
            found[f"model.assets.{key}"] = place
    for key in ("checkpoint_path", "adapter_checkpoint_path"):
        if model.get(key):
            found[f"model.{key}"] = model[key]
    return found


def _checkpoint(canonical: Mapping[str, Any]) -> dict[str, str]:
    checkpoint: Mapping[str, Any] = canonical.get("checkpoint", {})
    found: dict[str, str] = {}
    if checkpoint.get("mode") != "none" or canonical["action"] != "train":
        found = {
            f"checkpoint.{key}": checkpoint[key]
            for key in ("path", "resume_from")
            if checkpoint.get(key)
        }
    roles: Mapping[str, Any] = checkpoint.get("roles") or {}
    for role, value in roles.items():
        if value and value.get("path"):
            found[f"checkpoint.roles.{role}.path"] = value["path"]
    return found


def _transport(canonical: Mapping[str, Any]) -> dict[str, str]:
    transport: Mapping[str, Any] = canonical.get("data", {}).get("transport") or {}
    if transport.get("kind", "local") == "local" and transport.get("root"):
        return {"data.transport.root": transport["root"]}
    return {}
