"""`solarwm data plan --readers` and `--compare`: what every rank and worker takes."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from solarwm.cli.data_options import usage
from solarwm.cli.output import columns, emit

if TYPE_CHECKING:
    from solarwm.data.index import Index
    from solarwm.data.plan import PlanSettings


def show_shares(
    rows: Index,
    settings: PlanSettings,
    *,
    world_size: int,
    local_world_size: int,
    shared: int,
    workers: int,
    epoch: int,
    compare: str,
    json: bool,
) -> None:
    """Print the share of every reader; with `compare`, of a second topology beside it."""
    from solarwm.data.shares import reader_shares, summary

    def told(ranks: int, local: int, num_workers: int) -> dict[str, Any]:
        found = reader_shares(
            rows,
            settings,
            world_size=ranks,
            local_world_size=local,
            sequence_parallel_size=shared,
            num_workers=num_workers,
            epoch=epoch,
        )
        return {
            "topology": f"{ranks}x{num_workers}",
            **summary(found),
            "shares": [asdict(share) for share in found],
        }

    local = local_world_size or world_size
    value: dict[str, Any] = {"epoch": epoch, "topologies": [told(world_size, local, workers)]}
    if compare:
        ranks, other = _topology(compare)
        local = min(local_world_size or ranks, ranks)
        if ranks % local or local % shared:
            why = f"{ranks} ranks, {local} a node, {shared} sharing a sample"
            raise usage("the counts of --compare do not divide", why)
        value["topologies"].append(told(ranks, local, other))
    emit(value, json=json, text=_lines)


def _topology(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,3})", text)
    if not found:
        raise usage("--compare takes RANKSxWORKERS, for example 16x4", f"it is {text!r}")
    return int(found[1]), int(found[2])


def _lines(value: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for told in value["topologies"]:
        empty = told["empty"]
        lines.append(
            f"{told['topology']} (ranks x workers), epoch {value['epoch']}: "
            f"{told['readers']} readers, {told['fewest']} to {told['most']} samples each, "
            f"{len(empty)} with none"
        )
        table = [
            (
                str(share["dp_rank"]),
                str(share["worker"]),
                str(share["node"]),
                str(share["samples"]),
            )
            for share in told["shares"]
        ]
        lines += [*columns(table, header=("rank group", "worker", "node", "samples")), ""]
    return lines[:-1]
