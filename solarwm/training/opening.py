"""What a training run says of itself when its directory is opened."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from solarwm.errors.types import SolarError
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import write_launch
from solarwm.training.resuming import Source

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

PACKAGES = ("torch", "safetensors", "diffusers", "av")


def require_packages(
    installed: Callable[[str], bool] = lambda name: find_spec(name) is not None,
) -> None:
    """Refuse (exit 5) to start without the packages a run needs; imports none of them."""
    missing = [name for name in PACKAGES if not installed(name)]
    if missing:
        raise SolarError(
            "train.extra-missing",
            f"packages are missing: {', '.join(missing)}",
            fixes=["pip install 'solarwm[run]'", "solarwm environment probe"],
            context={"missing": missing},
        )


def require_route(resolved: ResolvedRun) -> None:
    """Refuse (exit 2) to train a route that this release only resolves and checks."""
    route = resolved.route
    if _exists(route.spec.heavy.partition(":")[0]):
        return
    raise SolarError(
        "cli.not-available",
        f"training of {route.key} is not in this release",
        why="the config desk knows the route; what trains it is not built yet",
        fixes=["solarwm config routes --explain"],
    )


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def wants_validation(config: Any) -> bool:
    """Whether a run generates held-out clips."""
    steps = getattr(config.runtime, "validation_steps", ())
    if not (config.validate_every or steps) or not config.validation.sample_count:
        return False
    return bool(config.validation.passes)


def write_launch_files(layout: RunLayout, resolved: Any, *, token: str, source: Source) -> None:
    """`resolved-config.json` and `launch-manifest.json`. For rank 0."""
    write_launch(
        layout,
        resolved,
        launch={
            "token": token,
            "resumed_from": str(source.checkpoint) if source.checkpoint else None,
            "resumed_step": source.step,
        },
    )


def facts(
    resolved: Any, layout: RunLayout, *, world_size: int, source: Source, last_step: int
) -> dict[str, Any]:
    """What a view shows of a run before its first step."""
    return {
        "name": resolved.config.name,
        "route": resolved.route.key,
        "run_path": str(layout.root),
        "max_steps": last_step,
        "first_step": source.step,
        "world_size": world_size,
        "global_batch_size": resolved.config.train.global_batch_size,
    }
