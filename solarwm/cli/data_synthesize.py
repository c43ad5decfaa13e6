"""`solarwm data synthesize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solarwm.cli.data_options import usage
from solarwm.cli.output import JsonOption, columns, emit
from solarwm.errors.types import SolarError


def synthesize(
    out: Annotated[Path, typer.Option("--out", help="Folder to fill; it must hold no index yet.")],
    clips: Annotated[int, typer.Option("--clips", help="Clips; a quarter is for testing.")],
    frames: Annotated[int, typer.Option("--frames", help="Pixel frames of a clip.")],
    height: Annotated[int, typer.Option("--height", help="Picture height in pixels.")],
    width: Annotated[int, typer.Option("--width", help="Picture width in pixels.")],
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same bytes.")],
    fps: Annotated[float, typer.Option("--fps", help="Frames per second.")] = 16.0,
    workers: Annotated[int, typer.Option("--workers", help="Processes; no effect on bytes.")] = 1,
    scene: Annotated[
        str, typer.Option("--scene", help="The world the clips are filmed in.")
    ] = "room",
    focal_x: Annotated[
        float, typer.Option("--focal-x", help="Focal length / width; 0 = the published lens.")
    ] = 0.0,
    focal_y: Annotated[
        float, typer.Option("--focal-y", help="Focal length / height; 0 = the published lens.")
    ] = 0.0,
    json: JsonOption = False,
) -> None:
    """Film clips of a procedural world: shards, exact cameras, captions, two indexes."""
    try:
        import av  # noqa: F401  (the writer needs it only when a clip is encoded: too late to say so)

        from solarwm.synthetic.renderer import FIXED_LENS, Lens
        from solarwm.synthetic.writer import synthesize as film
    except ImportError as error:
        raise SolarError(
            "data.extra-missing",
            "PyAV is needed to write video",
            why=str(error),
            fixes=["pip install 'solarwm[data]'"],
        ) from None
    from solarwm.cli.progress import counted

    lens = Lens(fx=focal_x or FIXED_LENS.fx, fy=focal_y or FIXED_LENS.fy)
    with counted("filming", "clips") as progress:
        try:
            report = film(
                out,
                clips=clips,
                frames=frames,
                height=height,
                width=width,
                seed=seed,
                fps=fps,
                workers=workers,
                scene=scene,
                lens=lens,
                progress=progress,
            )
        except FileExistsError as error:
            raise SolarError(
                "cli.file-exists",
                "the folder already holds an index",
                where=str(out),
                why=str(error),
                fixes=["choose another --out"],
            ) from None
        except ValueError as error:
            raise usage("the world cannot be made", str(error)) from None
    value = {
        "schema": "solarwm.synthesis.v1",
        "out": str(out.resolve()),
        "train_index": str(report.train_index.resolve()),
        "test_index": str(report.test_index.resolve()),
        "train_clips": report.num_train,
        "test_clips": report.num_test,
        "shards": list(report.shards),
        "bytes": report.num_bytes,
    }
    emit(value, json=json, text=lambda told: columns([(k, _cell(v)) for k, v in told.items()]))


def _cell(value: object) -> str:
    return f"{len(value)}" if isinstance(value, list) else str(value)
