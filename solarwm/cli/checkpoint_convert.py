"""`solarwm checkpoint convert`: any weight file into another layout."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.output import JsonOption, emit
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.workshop.tensors import Tensors


class Layout(StrEnum):
    """Layouts to write."""

    AUTO = "auto"
    SAFETENSORS = "safetensors"
    SHARDED = "sharded"
    TORCH = "torch"
    DCP = "dcp"
    RELEASED = "released"


class NumberType(StrEnum):
    """Types of floats to write."""

    KEEP = "keep"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Weights(StrEnum):
    """Which set."""

    LIVE = "live"
    EMA = "ema"


WeightsOption = Annotated[
    Weights, typer.Option("--weights", help="Set to take where the source has both.")
]
DtypeOption = Annotated[NumberType, typer.Option("--dtype", help="Type floats are written in.")]
OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what stands there, once the new one is complete."),
]
LayoutOption = Annotated[
    Layout,
    typer.Option(
        "--format",
        help="Layout; auto goes by the name: .safetensors, .pt or .pth, else a folder of shards.",
    ),
]


def convert(
    source: Annotated[Path, typer.Argument(help="Weights in any layout, or a run.")],
    output: Annotated[Path, typer.Argument(help="File or folder to write.")],
    format: LayoutOption = Layout.AUTO,
    weights: WeightsOption = Weights.LIVE,
    role: Annotated[
        str, typer.Option("--role", help="Role to take: student, critic, or of a DCP its name.")
    ] = "student",
    dtype: DtypeOption = NumberType.KEEP,
    strip_prefix: Annotated[
        str | None,
        typer.Option("--strip-prefix", help="Prefix to take off.  [default: those of wrappers]"),
    ] = None,
    add_prefix: Annotated[str, typer.Option("--add-prefix", help="Prefix to put on.")] = "",
    shard_gib: Annotated[
        float, typer.Option("--shard-gib", help="Largest shard of a folder.", min=0.000001)
    ] = 5.0,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Write weights in another layout: safetensors (one file, or shards with an index), torch, DCP,
    `model.pt`.

    Wrapper segments (`_orig_mod.`, `_checkpoint_wrapped_module.`) and prefixes that all names share
    (`module.`, `net.`, `model.`) are taken off. Safetensors are written tensor by tensor, so memory
    does not grow with the model; torch and DCP hold all of it.
    """
    from solarwm.workshop.names import changed
    from solarwm.workshop.tensors import open_tensors

    found = open_tensors(source, weights=weights.value, role=role)
    names = changed(found.facts, strip=strip_prefix, add=add_prefix)
    report = written(
        found.renamed(names),
        output,
        layout=format,
        dtype=dtype,
        overwrite=overwrite,
        shard_gib=shard_gib,
        verb="converting",
    )
    moved = [(old, new) for new, old in names.items() if new != old]
    report |= {
        "source": {
            "path": str(found.path),
            "kind": found.kind,
            "weights": weights.value,
            "left_out": list(found.left_out),
        },
        "renamed": len(moved),
        "renamed_example": list(moved[0]) if moved else None,
    }
    emit({"schema": "solarwm.conversion.v1", **report}, json=json, text=lines)


def written(
    tensors: Tensors,
    output: Path,
    *,
    layout: Layout,
    dtype: NumberType,
    overwrite: bool,
    verb: str,
    shard_gib: float = 5.0,
    metadata: dict[str, str] | None = None,
    beside: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write tensors with a progress bar; gives what was written. `beside` is written as JSON next to a
    file, under its name with `.report.json`."""
    import torch

    from solarwm.cli.progress import counted
    from solarwm.storage.digests import human_json
    from solarwm.storage.durable import write_bytes_atomic
    from solarwm.workshop.writing import Throughput, in_place_of, write

    chosen = _layout(output) if layout == Layout.AUTO else layout
    asked = None if dtype == NumberType.KEEP else getattr(torch, dtype.value)
    total = tensors.num_bytes
    mib = 1 << 20
    pace = Throughput()
    with (
        in_place_of(output, overwrite=overwrite, num_bytes=total) as private,
        counted(verb, "MiB") as progress,
    ):

        def wrote(count: int) -> None:
            pace.add(count)
            progress(pace.num_bytes // mib, max(1, total // mib))

        files = write(
            tensors,
            private,
            format=chosen.value,
            dtype=asked,
            metadata=metadata,
            shard_bytes=int(shard_gib * (1 << 30)),
            progress=wrote,
        )
    if beside is not None:
        write_bytes_atomic(output.with_name(output.name + ".report.json"), human_json(beside))
    return {
        "output": str(output),
        "format": chosen.value,
        "files": [output.name] if output.is_file() else files,
        "tensors": len(tensors.facts),
        "num_bytes": sum(p.stat().st_size for p in _files(output)),
        "dtype": dtype.value,
        "bytes_per_second": round(pace.per_second),
    }


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    from solarwm.storage.space import format_bytes

    yield (
        f"{report['output']}: {report['tensors']} tensors, {format_bytes(report['num_bytes'])}, "
        f"{report['format']}, {format_bytes(report['bytes_per_second'])} a second"
    )
    if report.get("renamed"):
        old, new = report["renamed_example"]
        yield f"  {report['renamed']} names changed, such as {old} -> {new}"
    for name in report.get("source", {}).get("left_out", [])[:5]:
        yield f"  left out, no tensor: {name}"


def _layout(output: Path) -> Layout:
    found = {".safetensors": Layout.SAFETENSORS, ".pt": Layout.TORCH, ".pth": Layout.TORCH}
    if output.suffix in found:
        return found[output.suffix]
    if output.suffix in ("", ".dcp"):
        return Layout.DCP if output.suffix else Layout.SHARDED
    raise SolarError(
        "cli.usage",
        f"the name {output.name!r} does not say which layout to write",
        where="solarwm checkpoint",
        fixes=["--format safetensors|sharded|torch|dcp|released"],
    )


def _files(output: Path) -> list[Path]:
    return [output] if output.is_file() else [p for p in output.rglob("*") if p.is_file()]
