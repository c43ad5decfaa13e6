"""`solarwm config`: routes, examples, resolving, checking, comparing, schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit, note, print_json
from solarwm.cli.run_options import ConfigOption, SetFileOption, SetOption

group = typer.Typer(
    help="Routes, examples, resolving, checking and comparing configs.", add_completion=False
)


@group.command(epilog="Example: solarwm config routes --explain wan22_i2v_a14b:stage1")
def routes(
    key: Annotated[
        str, typer.Argument(metavar="[KEY]", help="With --explain: the combination, or part of it.")
    ] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why a combination does not run.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """The routes that run, sorted; a route is family:stage:causal_mode:objective[:variant]."""
    from solarwm.routes.table import ROUTES, keys

    if explain or key:
        _explain_routes(key, json=json)
        return
    frames = {row.key: ", ".join(map(str, row.frames)) for row in ROUTES}
    emit(
        keys(),
        json=json,
        text=lambda value: columns(
            [(key, frames[key]) for key in value], header=("route", "frames")
        ),
    )


def _explain_routes(key: str, *, json: bool) -> None:
    from solarwm.routes.compatibility import STAGES
    from solarwm.routes.table import ROOMS

    if key:
        value = _explanation(key)
        emit(value, json=json, text=lambda item: _explained(item))
        return
    every = [_explanation(f"{family}:{stage}") for family in ROOMS for stage in STAGES]
    emit(
        [item for item in every if not item["routes"]],
        json=json,
        text=lambda value: [line for item in value for line in _explained(item)],
    )


def _explanation(key: str) -> dict[str, Any]:
    from solarwm.errors.redaction import redacted
    from solarwm.routes import compatibility

    ask = compatibility.parse_key(redacted(key))
    row = compatibility.find(ask)
    family = compatibility.of_family(compatibility.normalise(ask).family)
    staged = [item for item in family if ask.stage in (None, item.stage)]
    partial = ask.objective is None and ask.causal_mode is None
    runs = [row] if row is not None else staged if partial else []
    return {
        "asked": redacted(key),
        "supported": bool(runs),
        "routes": sorted(item.key for item in runs),
        "reasons": [] if runs else compatibility.reasons(ask),
        "routes_of_family": sorted(item.key for item in family),
    }


def _explained(item: dict[str, Any]) -> list[str]:
    if item["supported"]:
        return [f"{key} runs" for key in item["routes"]]
    lines = [f"{item['asked']} does not run", *(f"  {reason}" for reason in item["reasons"])]
    return lines + [f"  runs: {key}" for key in item["routes_of_family"]]


@group.command("list", epilog="Example: solarwm config list")
def list_examples(json: JsonOption = False) -> None:
    """The example configs that ship with the package."""
    from solarwm.config import examples

    emit(
        examples.table(),
        json=json,
        text=lambda value: columns(
            [
                (item["name"], item["action"], item["stage"] or "-", item["profile"])
                for item in value
            ],
            header=("name", "action", "stage", "profile"),
        ),
    )


@group.command(epilog="Example: solarwm config show quickstart/stage0p5")
def show(
    name: Annotated[str, typer.Argument(help="Name from `solarwm config list`.")],
    json: JsonOption = False,
) -> None:
    """The text of an example config."""
    from solarwm.config import examples

    example = examples.find(name)
    text = example.path.read_text(encoding="utf-8")
    if json:
        print_json({"name": example.name, "path": str(example.path), "text": text})
        return
    sys.stdout.write(text)


@group.command(
    epilog="Example: solarwm config copy wan22_ti2v_5b/train_stage0p5_fm_81f my-configs --tiny --world 2"
)
def copy(
    name: Annotated[str, typer.Argument(help="Name from `solarwm config list`.")],
    directory: Annotated[Path, typer.Argument(help="Where to write it; nothing is overwritten.")],
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Write the tiny twin, which runs on a CPU.")
    ] = False,
    world: Annotated[int, typer.Option(help="Ranks of the twin.")] = 1,
    sp: Annotated[int, typer.Option(help="Ranks of the twin that share one sample.")] = 1,
    json: JsonOption = False,
) -> None:
    """Write an example config into a directory, as it is or as its tiny twin."""
    from solarwm.config import examples
    from solarwm.errors.types import SolarError
    from solarwm.storage.durable import create_bytes, storage_errors

    example = examples.find(name)
    target = directory / example.path.name
    if tiny:
        from solarwm.config.tiny import twin

        if world < 1 or sp < 1 or world % sp:
            raise SolarError(
                "cli.usage",
                "--world must be a positive multiple of --sp",
                fixes=["--world 2 --sp 1"],
            )
        data = twin(example.path, world_size=world, sequence_parallel_size=sp).encode()
    else:
        data = example.path.read_bytes()
    try:
        with storage_errors(target):
            directory.mkdir(parents=True, exist_ok=True)
            create_bytes(target, data)
    except FileExistsError:
        target = target if directory.is_dir() else directory
        raise SolarError(
            "cli.file-exists",
            f"{target} exists already",
            where=str(target),
            fixes=["choose another directory"],
        ) from None
    emit({"path": str(target), "tiny": tiny}, json=json, text=lambda _: [f"wrote {target}"])


@group.command(
    epilog="Example: solarwm config resolve --config run.yaml --set train.optimizer.lr=1e-4 --output resolved.json"
)
def resolve(
    config: ConfigOption,
    sets: SetOption = None,
    set_files: SetFileOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Write the JSON there (replaced atomically), and nothing on standard output unless --json.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check a config and print it with every default filled in, its topology and digests."""
    from solarwm.config.resolve import resolve as resolve_config
    from solarwm.errors.types import SolarError

    resolved = resolve_config(config, sets or (), files=set_files or ())
    envelope = resolved.envelope()
    for name in resolved.placeholders:
        note(f"note: {name} is still a placeholder")
    if output is not None:
        from solarwm.storage.digests import human_json
        from solarwm.storage.durable import storage_errors, write_bytes_atomic

        try:
            with storage_errors(output):
                output.parent.mkdir(parents=True, exist_ok=True)
                write_bytes_atomic(output, human_json(envelope))
        except FileExistsError:
            raise SolarError(
                "cli.file-exists",
                f"{output.parent} is a file",
                where=str(output),
                fixes=["choose a path below a directory"],
            ) from None
        if json:
            print_json(envelope)
        return
    emit(envelope, json=json, text=_summary)


def _summary(envelope: dict[str, Any]) -> list[str]:
    topology = envelope["topology"]
    lines = [
        f"{envelope['route']}",
        f"  source    {envelope['source']}",
        f"  digest    {envelope['resolved_digest']}",
    ]
    lines += [f"  batch     {topology['equation']} samples a step"]
    for key, unit in (("frames", ""), ("latents", ""), ("tokens", " a sample")):
        if topology[key] is not None:
            lines.append(f"  {key:<9} {topology[key]}{unit}")
    if topology["sequence_parallel_size"] > 1:
        lines.append(f"  split     {topology['latents_per_sp_rank']} latents per rank of a group")
    if topology["shard_mesh"]:
        axes = " x ".join(f"{name} {size}" for name, size in topology["shard_mesh"].items())
        lines.append(f"  weights   {axes}")
    lines.append(f"  saves     {topology['checkpoints_expected']}")
    lines.append(f"  validates {topology['validations_expected']}")
    lines += [f"note: {text}" for text in envelope["notes"]]
    return [*lines, "the whole config: add --json"]


@group.command(
    epilog="Example: solarwm config check configs/examples/wan22_ti2v_5b/*.yaml --strict"
)
def check(
    files: Annotated[list[Path], typer.Argument(help="YAML files or resolved JSON.")],
    strict: Annotated[bool, typer.Option("--strict", help="Refuse placeholders too.")] = False,
    sets: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Check config files; the exit code is 0 only when all are good."""
    from solarwm.config.resolve import require_no_placeholders
    from solarwm.config.resolve import resolve as resolve_config
    from solarwm.errors.render import render_json, render_text
    from solarwm.errors.types import SolarError

    results: list[dict[str, Any]] = []
    code = 0
    for path in files:
        result: dict[str, Any] = {"file": str(path), "ok": True, "exit_code": 0, "faults": []}
        try:
            resolved = resolve_config(path, sets or ())
            result |= {
                "route": resolved.route.key,
                "resolved_digest": resolved.resolved_digest,
                "notes": list(resolved.notes),
                "placeholders": list(resolved.placeholders),
            }
            if strict:
                require_no_placeholders(resolved)
        except SolarError as error:
            code = max(code, error.exit_code)
            result |= {
                "ok": False,
                "exit_code": error.exit_code,
                "faults": render_json(error)["faults"],
            }
            sys.stderr.write(f"{path}\n{render_text(error)}\n")
        results.append(result)
    emit(
        {"ok": code == 0, "strict": strict, "files": results},
        json=json,
        text=lambda value: [
            f"{'ok  ' if item['ok'] else 'BAD '} {item['file']}" for item in value["files"]
        ],
    )
    return code


@group.command(epilog="Example: solarwm config diff run.yaml outputs/my-run")
def diff(
    before: Annotated[Path, typer.Argument(help="Config file or run directory.")],
    after: Annotated[Path, typer.Argument(help="Config file or run directory.")],
    json: JsonOption = False,
) -> None:
    """What differs between two configs, and what of it would break a resume."""
    from solarwm.config.difference import compare
    from solarwm.config.resolve import resolve as resolve_config

    sides = [resolve_config(_config_of(path)) for path in (before, after)]
    differences = compare(sides[0].canonical, sides[1].canonical)

    def plain(breaks: bool) -> list[dict[str, Any]]:
        return [
            {"key": item.key, "before": item.before, "after": item.after, "reason": item.reason}
            for item in differences
            if item.breaks_resume is breaks
        ]

    value = {
        "before": str(sides[0].source),
        "after": str(sides[1].source),
        "equal": not differences,
        "resume_breaking": plain(True),
        "harmless": plain(False),
    }

    def text(found: dict[str, Any]) -> list[str]:
        if found["equal"]:
            return ["no difference"]
        lines: list[str] = []
        for title, name in (("breaks a resume", "resume_breaking"), ("harmless", "harmless")):
            if found[name]:
                lines.append(f"{title}:")
                rows = [
                    (
                        f"  {item['key']}",
                        str(item["before"]),
                        "->",
                        str(item["after"]),
                        item["reason"],
                    )
                    for item in found[name]
                ]
                lines += columns(rows)
        return lines

    emit(value, json=json, text=text)


def _config_of(path: Path) -> Path:
    return path / "resolved-config.json" if path.is_dir() else path


@group.command(
    epilog="Example: solarwm config schema --route wan22_ti2v_5b:stage0p5:bidirectional:flow_matching"
)
def schema(
    route: Annotated[
        str | None, typer.Option("--route", metavar="KEY", help="Only this route.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """JSON Schema of run configs, for editors."""
    from solarwm.config.schema import json_schema

    del json
    print_json(json_schema(route))
