"""What a resume of a run would do, told from files alone: no torch, no device, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from solarwm.checkpoints.directory import scan
from solarwm.checkpoints.manifest import check_sizes, read_proven
from solarwm.config.difference import compare
from solarwm.errors.types import SolarError
from solarwm.runs.layout import RunLayout

SCHEMA = "solarwm.resume-check.v1"


def resume_check(
    root: Path, *, config: dict[str, Any] | None = None, count: int = 8
) -> dict[str, Any]:
    """What `--resume latest` in `root` would restore, what differs from `config` (canonical; None =
    the run's own), and the next `count` samples.

    `resumable` is False when a difference would be refused. Raises `run.missing` or
    `run.nothing-to-resume` (exit 3).
    """
    layout = RunLayout(root)
    if not layout.resolved_config.is_file():
        raise SolarError(
            "run.missing", "there is no run in this directory", where=str(root),
            fixes=["solarwm run list DIRECTORY"],
        )  # fmt: skip
    listing = scan(root)
    passed_over = [f"{item.path.name}: {item.fault.headline}" for item in listing.partial]
    if listing.newest is None:
        raise SolarError(
            "run.nothing-to-resume",
            "there is no complete checkpoint to resume",
            where=str(root),
            why="; ".join(passed_over),
            fixes=["solarwm train ... --resume latest --allow-fresh starts from the beginning"],
        )
    entry = listing.newest
    check_sizes(entry.path, entry.manifest)
    state = read_proven(entry.path, entry.manifest)
    facts = state["facts"]
    own = orjson.loads(layout.resolved_config.read_bytes())
    wanted = config if config is not None else own
    differences = compare(facts["config"], wanted) if facts["config"] else []
    return {
        "schema": SCHEMA,
        "run": str(root),
        "checkpoint": str(entry.path),
        "step": entry.step,
        "max_steps": wanted["train"]["max_steps"],
        "occurrences": facts["occurrences"],
        "saved_by_ranks": state["world_size"],
        "ranks": wanted["distributed"]["world_size"],
        "restores": [
            {"member": member.name, "tensors": len(member.tensors)}
            for member in entry.manifest.members
        ],
        "passed_over": passed_over,
        "resumable": not any(d.breaks_resume for d in differences),
        "differences": [
            {
                "key": d.key,
                "saved": d.before,
                "now": d.after,
                "refused": d.breaks_resume,
                "reason": d.reason,
            }
            for d in differences
        ],
        "next_samples": _next_samples(wanted["data"], facts["occurrences"], count),
    }


def _next_samples(data: dict[str, Any], first: int, count: int) -> list[dict[str, Any]] | None:
    """The samples that follow, or None where only a running reader knows (`published` order)."""
    if data.get("order") != "indexed":
        return None
    from solarwm.data.index import read_index
    from solarwm.data.order import IndexedOrder

    root = data.get("index_root") or data["transport"]["root"]
    index = read_index(Path(root) / data["train_index"])
    order = IndexedOrder.of(index, data["seed"])
    found = []
    for occurrence in range(first, first + count):
        place = order.occurrence(occurrence)
        row = index.rows[place.row_ordinal]
        found.append({"occurrence": occurrence, "sample_id": row.sample_id, "epoch": place.epoch})
    return found
