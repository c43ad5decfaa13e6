"""`solarwm checkpoint`: list, inspect, verify, convert, merge, quantise and export. What touches no
tensors imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.checkpoint_convert import DtypeOption, NumberType, OverwriteOption, convert
from solarwm.cli.checkpoint_merge import merge
from solarwm.cli.checkpoint_prune import prune
from solarwm.cli.checkpoint_quantize import quantize
from solarwm.cli.output import JsonOption, columns, emit

if TYPE_CHECKING:
    from solarwm.checkpoints.directory import Entry
    from solarwm.checkpoints.manifest import Manifest

group = typer.Typer(
    help="List, inspect, verify, convert, combine and export checkpoints.", add_completion=False
)


class Format(StrEnum):
    """Layouts of an export."""

    RELEASED = "released"
    DIFFUSERS = "diffusers"
    SAFETENSORS = "safetensors"


class DefaultWeights(StrEnum):
    """Weights a release note may name."""

    LIVE = "live"
    EMA = "ema"


PlaceArgument = Annotated[Path, typer.Argument(help="A checkpoint, or a run (its newest one).")]


@group.callback()
def _group() -> None:
    """List, inspect, verify, thin out, convert, combine and export checkpoints."""


group.command("prune", epilog="Example: solarwm checkpoint prune outputs/my-run --keep-last 3")(
    prune
)


group.command(
    "convert", epilog="Example: solarwm checkpoint convert outputs/my-run weights.safetensors"
)(convert)
group.command(
    "merge",
    epilog="Example: solarwm checkpoint merge --base A --diff-base B --diff-target C --output D",
)(merge)
group.command(
    "quantize", epilog="Example: solarwm checkpoint quantize outputs/my-run small.safetensors"
)(quantize)


@group.command("list", epilog="Example: solarwm checkpoint list outputs/my-run")
def list_checkpoints(
    run: Annotated[Path, typer.Argument(help="A run directory.")], json: JsonOption = False
) -> None:
    """The complete checkpoints of a run in the order of saving, and what is not complete."""
    from solarwm.checkpoints.directory import scan
    from solarwm.errors.types import SolarError

    if not run.is_dir():
        raise SolarError("run.missing", "there is no run directory", where=str(run))
    found = scan(run)
    listing = {
        "schema": "solarwm.checkpoint-list.v1",
        "run": str(run),
        "checkpoints": [_summary(entry) for entry in found.complete],
        "of_other_runs": [_summary(entry) for entry in found.foreign],
        "partial": [
            {"path": str(item.path), "code": item.fault.code, "why": _why(item.fault)}
            for item in found.partial
        ],
        "leftovers": [str(path) for path in found.leftovers],
    }
    emit(listing, json=json, text=_list_lines)


@group.command(epilog="Example: solarwm checkpoint inspect outputs/my-run --json")
def inspect(
    path: Annotated[
        Path, typer.Argument(help="A checkpoint, a run (its newest one), or any weight file.")
    ],
    keys: Annotated[
        str | None, typer.Option("--keys", help="Pattern of tensors of a weight file to list.")
    ] = None,
    diff: Annotated[
        Path | None, typer.Option("--diff", help="A weight file to hold against this one.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """What a checkpoint holds: roles, parts, tensors, files, and the state of the run; of any other
    weight file its tensors, types and prefixes.

    Of weight files headers are read, no values, and nothing in them is executed.
    """
    from solarwm.checkpoints.directory import find
    from solarwm.checkpoints.manifest import check_sizes, read_manifest, read_proven
    from solarwm.checkpoints.packages import is_package

    if keys is not None or diff is not None or _is_foreign(path):
        from solarwm.cli.checkpoint_inspect import foreign, foreign_lines

        emit(foreign(path, keys=keys, diff=diff), json=json, text=foreign_lines)
        return
    if is_package(path):
        emit(_package(path), json=json, text=_package_lines)
        return
    place = find(path)
    manifest = read_manifest(place)
    check_sizes(place, manifest)
    emit(_details(place, manifest, read_proven(place, manifest)), json=json, text=_detail_lines)


@group.command(epilog="Example: solarwm checkpoint verify outputs/my-run --deep")
def verify(
    path: PlaceArgument,
    deep: Annotated[
        bool, typer.Option("--deep/--quick", help="Read every byte, or compare sizes only.")
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="Every one of a run.")] = False,
    json: JsonOption = False,
) -> None:
    """Prove a checkpoint: marker, manifest, presence, sizes, and the digest of every file.

    Of a run, the newest is meant. Ends with 3 and names every bad file when something differs from
    what was saved, also when a later checkpoint of the run cannot be used. A published package
    records sizes and the digest of its manifest, no digests of its files. Of any other weight file
    every tensor is read and its numbers are looked at.
    """
    from solarwm.checkpoints.directory import find, scan, step_of
    from solarwm.checkpoints.manifest import verify as prove
    from solarwm.checkpoints.packages import is_package
    from solarwm.errors.types import FaultList

    if _is_foreign(path):
        from solarwm.workshop.proof import prove_weights

        emit(prove_weights(path, deep=deep), json=json, text=_weights_proof_lines)
        return
    if is_package(path):
        emit(_package_proof(path), json=json, text=_proof_lines)
        return
    listing = scan(path)
    places = [entry.path for entry in listing.complete] if every else []
    places = places or [find(path)]
    newest = -1 if every else max(step_of(place.name) or 0 for place in places)
    unusable = [item for item in listing.partial if (step_of(item.path.name) or 0) > newest]
    if unusable:
        raise FaultList([item.fault for item in unusable])
    proofs = [prove(place, deep=deep) for place in places]
    report = {
        "schema": "solarwm.checkpoint-verification.v1",
        "digests_checked": deep,
        "checkpoints": [
            {
                "path": str(proof.path),
                "step": proof.manifest.step,
                "num_files": proof.num_files,
                "num_bytes": proof.num_bytes,
                "strays": list(proof.strays),
            }
            for proof in proofs
        ],
    }
    emit(report, json=json, text=_proof_lines)


@group.command(
    epilog="Example: solarwm checkpoint export outputs/my-run --format released --output my-weights"
)
def export(
    path: PlaceArgument,
    output: Annotated[Path, typer.Option("--output", help="Directory to write.")],
    format: Annotated[
        Format,
        typer.Option("--format", help="The published package, a diffusers folder, or safetensors."),
    ] = Format.RELEASED,
    default_weights: Annotated[
        DefaultWeights | None,
        typer.Option(help="Weights the release note names; EMA where there is one."),
    ] = None,
    weights: Annotated[
        DefaultWeights | None,
        typer.Option(
            "--weights", help="Set for diffusers and safetensors; EMA where there is one."
        ),
    ] = None,
    dtype: DtypeOption = NumberType.KEEP,
    verify: Annotated[
        bool, typer.Option("--verify", help="Open the result again and compare every value.")
    ] = False,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Write weights for others: a published package, a diffusers folder, or plain safetensors.

    A package holds `model.pt` (live and averaged weights, step, config), the manifest, the release
    note and the marker; `infer` and `weights_only` starts read it, a resume does not. The other two
    hold one set of weights and a card made of what the checkpoint records.
    """
    if format == Format.RELEASED:
        from solarwm.checkpoints.release import export_released

        default = default_weights.value if default_weights else None
        target = export_released(path, output, default_weights=default)
        emit(_package(target), json=json, text=_package_lines)
        return
    import torch

    from solarwm.cli.progress import counted
    from solarwm.workshop.export import export_folder

    with counted("exporting", "MiB") as progress:
        done = 0

        def wrote(count: int) -> None:
            nonlocal done
            done += count
            progress(done >> 20, max(1, done >> 20))

        report = export_folder(
            path,
            output,
            format=format.value,
            weights=weights.value if weights else "model",
            dtype=None if dtype == NumberType.KEEP else getattr(torch, dtype.value),
            verify=verify,
            overwrite=overwrite,
            progress=wrote,
        )
    emit({"schema": "solarwm.export.v1", **report}, json=json, text=_export_lines)


def _weights_proof_lines(report: dict[str, Any]) -> Iterator[str]:
    from solarwm.storage.space import format_bytes

    what = "every number looked at" if report["values_read"] else "headers only"
    size = format_bytes(report["num_bytes"])
    yield f"{report['path']}: good ({report['tensors']} tensors, {size}, {what})"


def _export_lines(report: dict[str, Any]) -> Iterator[str]:
    proof = ", every value compared" if report["verified"] else ""
    yield f"{report['output']}: {report['tensors']} tensors of the {report['weights']} weights{proof}"
    yield from (f"  {name}" for name in report["files"])


def _is_foreign(path: Path) -> bool:
    """Whether this is a weight file, or a folder of them, that no checkpoint or package surrounds."""
    if not path.is_dir():
        return path.is_file()
    ours = (path / "COMPLETE.json").exists() or (path / "run-result.json").exists()
    names = ("*.safetensors", "transformer/*.safetensors", ".metadata", "model.pt")
    return not ours and any(True for name in names for _ in path.glob(name))


def _package(path: Path) -> dict[str, Any]:
    from solarwm.checkpoints.packages import read_package

    package = read_package(path)
    return {
        "schema": "solarwm.package-inspection.v1",
        "path": str(path),
        "step": package.step,
        "contract": package.contract,
        "weights": list(package.weights),
        "default_weights": package.default_weights,
        "metadata": package.metadata,
        "num_bytes": sum(item.stat().st_size for item in path.rglob("*") if item.is_file()),
    }


def _package_proof(path: Path) -> dict[str, Any]:
    details = _package(path)
    return {
        "schema": "solarwm.checkpoint-verification.v1",
        "digests_checked": False,
        "checkpoints": [
            {
                "path": str(path),
                "step": details["step"],
                "num_files": sum(item.is_file() for item in path.rglob("*")),
                "num_bytes": details["num_bytes"],
                "strays": [],
            }
        ],
    }


def _summary(entry: Entry) -> dict[str, Any]:
    return {
        "path": str(entry.path),
        "step": entry.step,
        "save_index": entry.save_index,
        "run_id": entry.run_id,
        "world_size": entry.manifest.world_size,
        "num_bytes": entry.manifest.size,
        "members": entry.manifest.required_components,
    }


def _details(place: Path, manifest: Manifest, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": "solarwm.checkpoint-inspection.v1",
        "path": str(place),
        "step": manifest.step,
        "run_id": manifest.run_id,
        "save_index": manifest.save_index,
        "world_size": manifest.world_size,
        "num_bytes": manifest.size,
        "contract": manifest.contract,
        "members": [
            {
                "name": member.name,
                "num_tensors": len(member.tensors),
                "num_bytes": sum(file.size for file in manifest.files_under(member.name)),
                "tensors": [tensor.model_dump() for tensor in member.tensors],
            }
            for member in manifest.members
        ],
        "files": [file.model_dump() for file in manifest.files],
        "state": state,
    }


def _list_lines(listing: dict[str, Any]) -> Iterator[str]:
    from solarwm.storage.space import format_bytes

    rows = [
        (str(entry["step"]), format_bytes(entry["num_bytes"]), Path(entry["path"]).name)
        for entry in listing["checkpoints"]
    ]
    if rows:
        yield from columns(rows, header=("STEP", "SIZE", "CHECKPOINT"))
    else:
        yield "no complete checkpoints"
    for entry in listing["of_other_runs"]:
        yield f"of another run: {entry['path']}"
    for entry in listing["partial"]:
        yield f"not usable: {entry['path']} ({entry['why']})"
    for path in listing["leftovers"]:
        yield f"unfinished save, removed at the next start: {path}"


def _detail_lines(details: dict[str, Any]) -> Iterator[str]:
    from solarwm.storage.space import format_bytes

    facts = details["state"].get("facts", {})
    yield f"{details['path']}: step {details['step']}, {format_bytes(details['num_bytes'])}"
    yield f"  route        {facts.get('route')}"
    yield f"  numerics     {facts.get('numerics')}"
    yield f"  occurrences  {facts.get('occurrences')}"
    yield f"  saved by     {details['world_size']} rank(s), save {details['save_index']}"
    rows = [
        (f"  {item['name']}", f"{item['num_tensors']} tensors", format_bytes(item["num_bytes"]))
        for item in details["members"]
    ]
    yield from columns(rows)


def _package_lines(details: dict[str, Any]) -> Iterator[str]:
    from solarwm.storage.space import format_bytes

    yield (
        f"{details['path']}: published package of step {details['step']}, "
        f"{format_bytes(details['num_bytes'])}"
    )
    for name, value in details["contract"].items():
        yield f"  {name:28} {value}"
    yield f"  {'weights':28} {', '.join(details['weights']) or 'not recorded'}"
    yield f"  {'default weights':28} {details['default_weights'] or 'not named'}"
    yield f"  {'numerics':28} {details['metadata'].get('numerics') or 'published'}"


def _proof_lines(report: dict[str, Any]) -> Iterator[str]:
    from solarwm.storage.space import format_bytes

    what = "every digest" if report["digests_checked"] else "sizes only"
    for item in report["checkpoints"]:
        size = format_bytes(item["num_bytes"])
        yield f"{item['path']}: good ({item['num_files']} files, {size}, {what})"
        for stray in item["strays"]:
            yield f"  not part of it: {stray}"


def _why(fault: Any) -> str:
    return fault.why or fault.headline
