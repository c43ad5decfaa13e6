"""The route a config chose, as a value the whole run carries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from solarwm.routes.spec import BackboneSpec, Route


class RouteSpec(BaseModel):
    """One row of the route table, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    key: str
    """Published key `family:stage:causal_mode:objective[:variant]`."""
    family: str
    stage: str
    causal_mode: str
    objective: str
    variant: str | None
    roles: tuple[str, ...]
    backbone_spec: str
    """Import string of the backbone's `BackboneSpec`."""
    objective_factory: str
    """Import string of the objective's factory (torch); empty for preencode."""

    @property
    def spec(self) -> BackboneSpec:
        """What the house knows of the backbone."""
        return load(self.backbone_spec)


def route_spec(row: Route) -> RouteSpec:
    """The frozen value of a table row."""
    return RouteSpec(
        key=row.key,
        family=row.family,
        stage=row.stage,
        causal_mode=row.causal_mode,
        objective=row.objective,
        variant=row.variant,
        roles=row.roles,
        backbone_spec=row.backbone_spec,
        objective_factory=row.objective_factory,
    )


def load(reference: str) -> Any:
    """The object an import string `module:name` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
