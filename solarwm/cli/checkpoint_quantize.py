"""`solarwm checkpoint quantize`: linear layers in eight bits."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.checkpoint_convert import (
    DtypeOption,
    Layout,
    NumberType,
    OverwriteOption,
    Weights,
    WeightsOption,
    lines,
    written,
)
from solarwm.cli.output import JsonOption, emit
from solarwm.errors.types import SolarError


class Scheme(StrEnum):
    """How numbers are kept."""

    BLOCK = "int8-block128"
    CHANNEL = "int8-channel"
    FP8 = "fp8-e4m3"


def quantize(
    source: Annotated[Path, typer.Argument(help="Weights in any layout, or a run.")],
    output: Annotated[Path, typer.Argument(help="A .safetensors file to write.")],
    scheme: Annotated[
        Scheme, typer.Option("--scheme", help="How numbers are kept.")
    ] = Scheme.BLOCK,
    within: Annotated[
        str, typer.Option("--within", help="Part of the model whose matrices are taken.")
    ] = "blocks.",
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", help="Pattern of names to leave.  [default: *proj_l*]"),
    ] = None,
    attention: Annotated[
        str, typer.Option("--attention", help="Attention the model runs with, for the note.")
    ] = "full",
    weights: WeightsOption = Weights.LIVE,
    dtype: DtypeOption = NumberType.KEEP,
    device: Annotated[str, typer.Option("--device", help="Where to compute.")] = "cpu",
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="Config of a model that runs with both; tells the output's error."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override of that config."),
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Write weights with the matrices of linear layers in eight bits, and the error of every layer.

    The file says itself how it is kept: `infer` and `weights_only` starts read it without a flag. All
    else stays as it is, or becomes --dtype.
    """
    if output.suffix != ".safetensors":
        raise SolarError(
            "cli.usage",
            "a quantised file is a .safetensors file",
            where="solarwm checkpoint quantize",
            fixes=[f"{output.with_suffix('.safetensors')}"],
        )
    import torch

    from solarwm.workshop.names import without_wrappers
    from solarwm.workshop.quantize import SKIP
    from solarwm.workshop.quantize import quantize as quantized
    from solarwm.workshop.tensors import open_tensors

    resolved = None
    if config is not None:
        from solarwm.cli.run_options import open_run

        resolved = open_run(config, set_, command="infer")
    found = open_tensors(source, weights=weights.value)
    try:
        place = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise SolarError(
            "device.unavailable", f"there is no device {device!r}", where="--device", why=str(error)
        ) from None
    made = quantized(
        found.renamed(without_wrappers(found.facts)),
        scheme=scheme.value,
        within=within,
        skip=skip if skip is not None else SKIP,
        attention=attention,
        device=place,
    )
    worst = max(made.layers, key=lambda layer: layer["relative"])
    report: dict[str, Any] = {
        "schema": "solarwm.quantization.v1",
        "scheme": scheme.value,
        "layers": made.layers,
        "worst": worst,
        "bytes_before": found.num_bytes,
    }
    report |= written(
        made.tensors,
        output,
        layout=Layout.SAFETENSORS,
        dtype=dtype,
        overwrite=overwrite,
        verb="quantising",
        metadata=made.metadata,
        beside=report,
    )
    if resolved is not None:
        from solarwm.workshop.trial import output_error

        report["output_error"] = output_error(resolved, source, output, weights=weights.value)
    emit(report, json=json, text=_lines)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from lines(report)
    worst = report["worst"]
    yield (
        f"  {len(report['layers'])} layers as {report['scheme']}; worst {worst['layer']}: "
        f"relative {worst['relative']:.2e}, largest {worst['max']:.2e}"
    )
    if "output_error" in report:
        yield f"  output of the model: relative error {report['output_error']:.2e}"
