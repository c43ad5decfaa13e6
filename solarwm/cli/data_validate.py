"""`solarwm data validate`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.data_options import IndexArgument, one_of
from solarwm.cli.output import JsonOption, columns, emit


def validate(
    index: IndexArgument,
    root: Annotated[
        Path | None, typer.Option("--root", help="Data root; default: the index's directory.")
    ] = None,
    pixel_frames: Annotated[
        int, typer.Option("--pixel-frames", help="Length of a clip; 0 asks for none.")
    ] = 0,
    fps: Annotated[float, typer.Option("--fps", help="Rate of a clip; 0 = of the source.")] = 0.0,
    camera_array_key: Annotated[
        str, typer.Option("--camera-array-key", help="Array of the camera NPZ.")
    ] = "c2w",
    max_rel_translation: Annotated[
        float, typer.Option("--max-rel-translation", help="Guard; 0 turns it off.")
    ] = 20.0,
    max_camera_abs: Annotated[
        float, typer.Option("--max-camera-abs", help="Guard; 0 turns it off.")
    ] = 20.0,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Look at the first N rows only; 0 = all.")
    ] = 0,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the work.")] = 1,
    decode: Annotated[
        bool, typer.Option("--decode", help="Also decode every video and count its frames.")
    ] = False,
    list_clips: Annotated[
        bool, typer.Option("--list", help="A line for every clip, not only for the bad ones.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Look at every row, shard, member and camera; list all faults (exit code 3)."""
    from solarwm.data.cameras import ARRAY_KEYS, CameraRules
    from solarwm.data.validation import ClipReport, Demands
    from solarwm.data.validation import validate as look
    from solarwm.errors.render import render_json

    one_of("--camera-array-key", camera_array_key, ARRAY_KEYS)
    rules = CameraRules(
        array_key=camera_array_key,
        max_rel_translation=max_rel_translation or None,
        max_camera_abs=max_camera_abs or None,
    )
    clips: list[ClipReport] = []

    def keep(clip: ClipReport) -> None:
        if list_clips or clip.dropped:
            clips.append(clip)

    demands = Demands(frames=pixel_frames, fps=fps, rules=rules, decode=decode)
    report = look(index, root or index.parent, demands, limit=limit, jobs=jobs, on_clip=keep)
    value = {
        "schema": "solarwm.data-validation.v1",
        "index": str(index.resolve()),
        "root": str(report.root.resolve()),
        "rows": report.num_rows,
        "kept": report.num_kept,
        "shards": report.num_shards,
        "ok": not report.faults,
        "clips": [asdict(clip) for clip in clips],
        "faults": [fault for error in report.faults for fault in _faults(render_json(error))],
    }
    emit(value, json=json, text=_validation_lines)
    raise typer.Exit(report.faults[0].exit_code if report.faults else 0)


def _validation_lines(value: dict[str, Any]) -> list[str]:
    rows = [
        (
            clip["sample_id"],
            f"{clip['source_frames']} at {clip['source_fps']:g}",
            f"{clip['frames']} at {clip['clip_fps']:g}",
            clip["dropped"] or "kept",
            clip["motion"],
        )
        for clip in value["clips"]
    ]
    lines = columns(rows, header=("sample", "source", "clip", "verdict", "camera")) if rows else []
    for fault in value["faults"]:
        lines += [
            "",
            f"{fault['code']}: {fault['headline']}",
            f"  {fault['where']}: {fault['why']}",
        ]
    verdict = "sound" if value["ok"] else f"{len(value['faults'])} faults"
    totals = f"{value['rows']} rows in {value['shards']} shards, {value['kept']} kept: {verdict}"
    return [*lines, *([""] if lines else []), totals]


def _faults(rendered: dict[str, Any]) -> list[Any]:
    return rendered["faults"]
