"""`solarwm data import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.data_options import one_of, usage
from solarwm.cli.output import JsonOption, columns, emit
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.data.imports.importer import ImportedClip, ImportReport


def import_(
    source: Annotated[
        Path, typer.Argument(help="Folder with videos, or a table (.csv, .json, .jsonl).")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder to fill; it must hold no index yet.")],
    dataset: Annotated[
        str, typer.Option("--dataset", help="First half of every sample id.")
    ] = "imported",
    cameras: Annotated[
        str,
        typer.Option(
            "--cameras",
            help="auto, none, engine, npz, npy, re10k, colmap, tum, kitti or nerf.",
        ),
    ] = "auto",
    convention: Annotated[
        str | None,
        typer.Option("--convention", help="c2w or w2c, where the files do not tell."),
    ] = None,
    scale: Annotated[
        float, typer.Option("--scale", help="Factor on translations: 0.01 for centimetres.")
    ] = 1.0,
    frames: Annotated[
        int, typer.Option("--frames", min=0, help="Frames a clip needs; 0 asks for no length.")
    ] = 0,
    fps: Annotated[
        float,
        typer.Option("--fps", min=0, help="Rate clips will be trained at; 0 = their own."),
    ] = 0.0,
    short: Annotated[
        str, typer.Option("--short", help="Clips that are too short: error, drop or keep.")
    ] = "error",
    test_clips: Annotated[
        int | None,
        typer.Option(
            "--test-clips", min=0, help="Held-out clips.  [default: a tenth, at most 100]"
        ),
    ] = None,
    video_column: Annotated[str, typer.Option("--video-column", help="Of a table.")] = "video",
    prompt_column: Annotated[str, typer.Option("--prompt-column", help="Of a table.")] = "prompt",
    rate_column: Annotated[str, typer.Option("--rate-column", help="Of a table.")] = "frame_rate",
    camera_column: Annotated[str, typer.Option("--camera-column", help="Of a table.")] = "camera",
    json: JsonOption = False,
) -> None:
    """Take your own videos and cameras in: shards and indexes in the published format.

    Videos are stored as they are. One line a clip says what became of it; a bad clip never stops the
    others, and exit code 4 says that some are missing. Clips without cameras get a still track, marked
    `identity`.
    """
    import math
    import re

    from solarwm.data.imports.importer import SHORT, ImportRules, import_clips
    from solarwm.data.imports.sources import Columns, find_clips
    from solarwm.data.imports.tracks import CONVENTIONS, FORMATS

    one_of("--cameras", cameras, ("auto", "none", *FORMATS))
    one_of("--short", short, SHORT)
    if convention is not None:
        one_of("--convention", convention, CONVENTIONS)
    if not (math.isfinite(scale) and scale > 0):
        raise usage("--scale must be positive and finite", f"it is {scale}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", dataset):
        raise usage("--dataset takes letters, digits, `_`, `-` and `.`", f"it is {dataset!r}")
    _require_av()
    names = Columns(
        video=video_column, caption=prompt_column, fps=rate_column, cameras=camera_column
    )
    clips = find_clips(source, names)
    rules = ImportRules(
        dataset=dataset,
        frames=frames,
        fps=fps,
        short=short,
        cameras=cameras,
        convention=convention,
        scale=scale,
        test_clips=test_clips,
    )
    report = import_clips(clips, out, rules, on_clip=lambda clip: typer.echo(_line(clip), err=True))
    emit(_value(report, out), json=json, text=_lines)
    if report.num_failed:
        text = f"{report.num_failed} of {len(clips)} clips could not be imported  [import.partial]"
        typer.echo(text, err=True)
    raise typer.Exit(4 if report.num_failed else 0)


def _line(clip: ImportedClip) -> str:
    size = f"{clip.frames} frames at {clip.fps:g} fps, {clip.clip_frames} after re-timing"
    parts = [f"{clip.verdict:<8}{clip.name}"]
    parts += [size] if clip.frames else []
    parts += [f"cameras {clip.cameras}: {clip.motion}"] if clip.motion else []
    parts += [f"[{clip.code}] {clip.why}"] if clip.why else []
    return "; ".join(parts)


def _value(report: ImportReport, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "schema": "solarwm.import.v1",
        "out": str(out.resolve()),
        "ok": not report.num_failed,
        "clips": [asdict(clip) for clip in report.clips],
        "kept": report.num_train + report.num_test,
        "dropped": sum(clip.verdict == "dropped" for clip in report.clips),
        "failed": report.num_failed,
        "without_cameras": sum(clip.cameras == "identity" for clip in report.clips),
        "train_clips": report.num_train,
        "test_clips": report.num_test,
        "shards": list(report.shards),
        "bytes": report.num_bytes,
    }


def _lines(value: dict[str, Any]) -> list[str]:
    names = ("kept", "dropped", "failed", "without_cameras", "train_clips", "test_clips", "out")
    return columns([(name.replace("_", " "), str(value[name])) for name in names])


def _require_av() -> None:
    from importlib.util import find_spec

    if find_spec("av") is None:
        raise SolarError(
            "data.extra-missing",
            "PyAV is needed to read video",
            fixes=["pip install 'solarwm[data]'"],
        )
