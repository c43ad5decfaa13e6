"""`solarwm plan`: what a run would need, worked out without a device."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.cli.run_options import ConfigOption, SetFileOption, SetOption, open_run
from solarwm.errors.types import SolarError

group = typer.Typer(
    help="What a run would need, worked out without a device.",
    no_args_is_help=True,
    add_completion=False,
)
GIB = 2**30


@group.callback()
def _plan() -> None:
    """Keeps `memory` a command of its own while it is the only one."""


@group.command(
    "memory",
    epilog="Example: solarwm plan memory "
    "--config configs/examples/wan22_ti2v_5b/train_stage0p5_fm_81f.yaml --device-memory 80",
)
def memory(
    config: ConfigOption,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    device_memory: Annotated[
        float, typer.Option("--device-memory", min=0, help="GiB of one device; 0 gives no verdict.")
    ] = 0.0,
    devices_per_node: Annotated[
        int, typer.Option("--devices-per-node", min=1, help="For HYBRID_SHARD.")
    ] = 8,
    json: JsonOption = False,
) -> None:
    """Memory of each device for a training config at its world size: no weights and no GPU needed.

    Shards are those FSDP2 gives a fake process group; activations are what a forward on the meta
    device keeps. Exit code 5 when --device-memory is too small.
    """
    resolved = open_run(config, set_, set_file, command="train")
    if find_spec("torch") is None:
        raise SolarError(
            "train.extra-missing",
            "packages are missing: torch",
            fixes=["pip install 'solarwm[run]'"],
            context={"missing": ["torch"]},
        )
    from solarwm.training.memory import MemoryPlanner, MemorySettings
    from solarwm.training.opening import require_route

    require_route(resolved)
    planner = MemoryPlanner(resolved)
    settings = MemorySettings.of(resolved, local_world_size=devices_per_node)
    estimate = planner.estimate(settings)
    limit = int(device_memory * GIB)
    fits = estimate.total <= limit if limit else None
    value = {
        "schema": "solarwm.memory-plan.v1",
        "route": resolved.route.key,
        "profile": resolved.config.model.profile,
        "parameters": planner.num_parameters,
        "world_size": settings.world_size,
        "strategy": settings.strategy,
        "estimate": estimate.plain(),
        "device_memory_bytes": limit or None,
        "fits": fits,
        "savings": [
            {"change": s.change, "saves_bytes": s.saves, "total_bytes": s.total}
            for s in planner.savings(settings)
        ],
    }
    emit(value, json=json, text=_lines)
    raise typer.Exit(5 if fits is False else 0)


def _lines(value: dict[str, Any]) -> list[str]:
    parts = [
        (name.removesuffix("_bytes"), f"{size / GIB:,.2f} GiB")
        for name, size in value["estimate"].items()
    ]
    lines = [
        f"{value['route']} ({value['profile']}): {value['parameters']:,} parameters, "
        f"{value['world_size']} devices, {value['strategy']}",
        "",
        *columns(parts, header=("on each device", "")),
    ]
    if value["fits"] is not None:
        limit = value["device_memory_bytes"] / GIB
        verdict = "fits into" if value["fits"] else "does not fit into"
        lines += ["", f"{verdict} {limit:,.0f} GiB"]
    helps = [
        (f"--set {saving['change']}", f"-{saving['saves_bytes'] / GIB:,.2f} GiB")
        for saving in value["savings"]
    ]
    return [*lines, "", *columns(helps, header=("what would help", ""))] if helps else lines
