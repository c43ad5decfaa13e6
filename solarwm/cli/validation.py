"""`solarwm validation`: which clips a run validates on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.cli.run_options import ConfigOption, SetFileOption, SetOption
from solarwm.errors.types import SolarError

group = typer.Typer(
    help="Which clips a run validates on.",
    no_args_is_help=True,
    add_completion=False,
)


@group.callback()
def _validation() -> None:
    """Keeps `plan` a command of its own while it is the only one."""


@group.command(
    "plan",
    epilog="Example: solarwm validation plan --config configs/examples/quickstart/infer.yaml "
    "--set data.index_root=$PWD/outputs/world --set data.transport.root=$PWD/outputs/world",
)
def plan(
    config: ConfigOption,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    json: JsonOption = False,
) -> None:
    """The clips, seeds and passes that a config validates: what a run freezes at its first validation.

    Reads the test index and its cameras, writes nothing. Exit code 3 when the output directory has
    frozen another plan; the first field that differs is named.
    """
    from solarwm import api
    from solarwm.config.resolve import resolve

    resolved = resolve(config, set_ or (), files=set_file or ())
    try:
        value = api.validation_plan(resolved)
    except ImportError as error:
        raise SolarError(
            "data.extra-missing",
            "numpy is needed to read cameras",
            why=str(error),
            fixes=["pip install 'solarwm[data]'"],
        ) from None
    emit(value, json=json, text=_lines)


def _lines(value: dict[str, Any]) -> Iterator[str]:
    bound = value["bound"]
    yield f"plan   {value['plan_key'][:16]}, {value['state']}"
    yield f"index  {bound['index_digest'][:16]}"
    yield f"seeds  selection {bound['selection_seed']}, noise {bound['noise_seed']}"
    yield ""
    yield from columns(
        [
            (
                item["name"],
                item["weights"],
                item["mode"],
                item["solver"],
                str(item["num_inference_steps"]),
                str(item["latents"] or "camera"),
            )
            for item in bound["passes"]
        ],
        header=("pass", "weights", "mode", "solver", "steps", "latents"),
    )
    yield ""
    yield from columns(
        [
            (
                str(case["slot"]),
                case["sample_id"],
                str(case["start_frame"]),
                str(case["metadata"]["source_pixel_frames"]),
                str(case["noise_seed"]),
                case["camera_fingerprint"][:12],
            )
            for case in value["cases"]
        ],
        header=("slot", "sample", "start", "frames", "noise seed", "camera"),
    )
