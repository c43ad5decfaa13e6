"""The stages of a chain side by side: picture quality, model evaluations and time a chunk."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.reports.facts import GenerationFacts, passes_of

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One pass of one stage."""

    stage: str
    solver: str
    evaluations: int
    """Model evaluations of a clip, or of a chunk where it is made chunk by chunk."""
    latents: int
    """Latent frames of a clip."""
    clips: int
    psnr: float
    """Mean over clips against the rendered truth, dB."""
    gain: float
    """The same over repeating the first frame, dB."""
    seconds_per_chunk: float | None
    """Median of the transformer's time, decoding not counted; None for whole clips."""


def stage_rows(stage: str, generation: GenerationFacts) -> list[StageRow]:
    """The passes of a generation that drive each clip's own camera, fewest evaluations first."""
    quality = generation.quality
    static = quality.get("baselines", {}).get("static", {}).get("truth", math.nan)
    times = _times(generation.root)
    passes = generation.config.get("validation", {}).get("passes", ())
    lengths = {item["name"]: int(item.get("rollout_latent_frames") or 0) for item in passes}
    rows = []
    for name, entry in passes_of(quality):
        if entry["camera"] != "source":
            continue
        own = sorted(times.get(name, ()))
        rows.append(
            StageRow(
                stage=stage,
                solver=str(entry.get("solver", "")),
                evaluations=int(entry.get("num_inference_steps", 0)),
                latents=lengths.get(name, 0),
                clips=int(entry.get("clips", 0)),
                psnr=float(entry["psnr_truth"]),
                gain=float(entry["psnr_truth"]) - float(static),
                seconds_per_chunk=own[len(own) // 2] if own else None,
            )
        )
    return sorted(rows, key=lambda row: row.evaluations)


def stage_section(rows: Sequence[StageRow]) -> str:
    """The table as a part of the page; empty without rows."""
    if not rows:
        return ""
    heads = "".join(f"<th class='number'>{head}</th>" for head in _HEADS[1:])
    lines = []
    for row in rows:
        first, *rest = _cells(row)
        cells = "".join(f"<td class='number'>{escape(cell)}</td>" for cell in rest)
        lines.append(f"<tr><td>{escape(first)}<small>{escape(row.solver)}</small></td>{cells}</tr>")
    return (
        "<h2>Stage by stage</h2><p class='muted'>Mean PSNR against the rendered truth. NFE counts "
        "model evaluations of a clip, from Stage1 on of a chunk; a chunk is three latent frames, "
        "its time that of the transformer alone.</p>"
        f"<div class='card'><table><tr><th>{_HEADS[0]}</th>{heads}</tr>{''.join(lines)}</table>"
        "</div>"
    )


def stage_table(rows: Sequence[StageRow]) -> Table:
    """The same in a terminal."""
    from rich.table import Table

    table = Table(title="Stage by stage", title_justify="left")
    for index, head in enumerate(_HEADS):
        table.add_column(head, justify="right" if index else "left")
    for row in rows:
        table.add_row(*_cells(row))
    return table


_HEADS = ("stage", "NFE", "latents", "clips", "PSNR dB", "over static dB", "s a chunk")


def _cells(row: StageRow) -> tuple[str, ...]:
    chunk = "" if row.seconds_per_chunk is None else f"{row.seconds_per_chunk:.3f}"
    return (
        row.stage,
        str(row.evaluations),
        str(row.latents),
        str(row.clips),
        f"{row.psnr:.2f}",
        f"{row.gain:+.2f}",
        chunk,
    )


def _times(root: Path) -> dict[str, list[float]]:
    """Seconds a chunk by pass, from the events of all ranks."""
    found: dict[str, list[float]] = {}
    for path in sorted((root / "events").glob("rank-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            event: dict[str, Any] = json.loads(line) if line.endswith("}") else {}
            if event.get("event") == "inference_sample" and "seconds_per_chunk" in event:
                found.setdefault(str(event["pass"]), []).append(float(event["seconds_per_chunk"]))
    return found
