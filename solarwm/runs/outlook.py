"""What is to come of a running run: time left, the next checkpoint, the room for it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, cast

from solarwm.runs.layout import RunLayout
from solarwm.storage.space import free_bytes

RECENT = 32
"""Steps whose time is looked at."""
TAIL_BYTES = 1 << 18


def outlook(root: Path, *, step: int | None, max_steps: int | None) -> dict[str, Any]:
    """Seconds left, checkpoints, validation passes, memory, and the disk; what is not known is None."""
    events = recent_events(root)
    times = [event["step_time_s"] for event in events if "step_time_s" in event][-RECENT:]
    step_s = statistics.median(times) if times else None
    left = max_steps - step if max_steps is not None and step is not None else None
    saved = sorted(root.glob("checkpoint_model_*/COMPLETE.json"))
    size = sum(p.stat().st_size for p in saved[-1].parent.rglob("*") if p.is_file()) if saved else 0
    memory = [_memory(event) for event in events if event.get("resident_bytes")]
    free = free_bytes(root)
    return {
        "step_time_s": step_s,
        "seconds_left": step_s * left if step_s is not None and left is not None else None,
        "checkpoints": len(saved),
        "last_checkpoint": saved[-1].parent.name if saved else None,
        "checkpoint_bytes": size or None,
        "disk_free_bytes": free,
        "next_checkpoint_fits": free > size if size else None,
        "validations": len(list(root.glob("validation/step_*/COMPLETE.json"))),
        "memory_bytes": memory[-1] if memory else None,
    }


def _memory(event: dict[str, Any]) -> int:
    """Bytes a rank holds: of its device where it has one, else of the process."""
    return int(event.get("peak_device_bytes") or event["resident_bytes"])


def recent_events(root: Path, world_rank: int = 0) -> list[dict[str, Any]]:
    """The last events of a rank, oldest first; the file may grow meanwhile, and end in half a line."""
    path = RunLayout(root).event_stream(world_rank)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines[1:] if size > TAIL_BYTES else lines:
        try:
            event: object = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(cast("dict[str, Any]", event))
    return found
