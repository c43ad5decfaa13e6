"""`solarwm infer`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.output import JsonOption, emit
from solarwm.cli.run_options import (
    ConfigOption,
    DryRunOption,
    SetFileOption,
    SetOption,
    open_run,
    print_result,
    show_dry_run,
)
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.inference.own_clip import OwnRequest


def infer(
    config: ConfigOption,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Fill the missing clips of the same output directory."),
    ] = False,
    first_row: Annotated[
        bool,
        typer.Option("--first-row", help="Generate row 0 of the train index, with its own camera."),
    ] = False,
    image: Annotated[
        Path | None,
        typer.Option("--image", help="Start at this picture instead of held-out clips."),
    ] = None,
    trajectory: Annotated[
        str | None, typer.Option("--trajectory", help='Held keys, such as "w*19,j*7".')
    ] = None,
    camera: Annotated[
        Path | None, typer.Option("--camera", help="NPZ or NPY camera track to drive the picture.")
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", help="What the picture shows.")] = "",
    print_: Annotated[
        bool, typer.Option("--print", help="Show the camera of --image and make nothing.")
    ] = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Generate held-out clips: MP4s, side-by-side comparisons, cameras, figures.

    One process, or one per rank under torchrun. Exit code 4 means that some clips are missing;
    --resume fills them. With --image and a camera, any picture is the first frame of one clip.
    """
    own = _own(image, trajectory, camera, prompt, first_row=first_row, print_=print_)
    resolved = open_run(config, set_, set_file, command="infer")
    if print_ and own is not None:
        from solarwm.inference.own_clip import camera_report

        emit(camera_report(resolved, own), json=json, text=_camera_lines)
        return
    if dry_run:
        raise typer.Exit(
            show_dry_run(
                resolved,
                command="infer",
                json=json,
                resume="latest" if resume else None,
                first_row=first_row,
                own=own,
            )
        )
    from solarwm.inference.run import infer as run_inference

    code = run_inference(resolved, resume=resume, first_row=first_row, own=own)
    if json:
        print_result(resolved, own=own is not None)
    raise typer.Exit(code)


def _own(
    image: Path | None,
    trajectory: str | None,
    camera: Path | None,
    prompt: str,
    *,
    first_row: bool,
    print_: bool,
) -> OwnRequest | None:
    why = ""
    if image is None and (trajectory or camera or prompt or print_):
        why = "--trajectory, --camera, --prompt and --print need --image"
    elif image is not None and first_row:
        why = "--image and --first-row are two choices of the first frame"
    elif image is not None and (trajectory is None) == (camera is None):
        why = "--image needs one of --trajectory and --camera"
    if why:
        raise SolarError(
            "cli.usage",
            why,
            where="solarwm infer",
            fixes=['solarwm infer --config FILE --image FILE --trajectory "w*19,j*7"'],
        )
    if image is None:
        return None
    from solarwm.inference.own_clip import OwnRequest

    return OwnRequest(image=image, trajectory=trajectory, camera=camera, prompt=prompt)


def _camera_lines(report: dict[str, Any]) -> Iterator[str]:
    yield f"given      {report['given_frames']} frames: {report['motion']}"
    yield f"generated  {report['frames']} frames, {report['latents']} latent frames"
    yield "camera-to-world of the first frame of every latent:"
    for row, pose in zip(report["latent_frames"], report["c2w"], strict=True):
        yield f"frame {row}"
        yield from ("  " + " ".join(f"{value:9.5f}" for value in line) for line in pose)
