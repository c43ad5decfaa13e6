"""From a file and overrides to one typed, checked, hashed run: every fault found in one look."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.config import aliases, expansion, loading, overrides, places, routing, secrets
from solarwm.config.binding import binding_faults, deviations, fill
from solarwm.config.document import Document, dotted, get, shown
from solarwm.config.finding import Finding
from solarwm.config.layout import geometry_findings, inputs_of
from solarwm.config.marks import Facts
from solarwm.config.plain import is_mapping
from solarwm.config.route import RouteSpec, load, route_spec
from solarwm.config.topology import Topology, build
from solarwm.config.topology import check as check_topology
from solarwm.config.translation import validate
from solarwm.errors.types import FaultList, SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from solarwm.config.sections import RunConfig
    from solarwm.routes.spec import BackboneSpec, Profile, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRun:
    """A config that passed every check that needs no device and no data."""

    source: Path
    """The file, absolute."""
    source_digest: str
    """BLAKE2s of its bytes."""
    resolved_digest: str
    """BLAKE2s of the canonical JSON of `canonical`."""
    route: RouteSpec
    config: RunConfig
    """The typed config."""
    canonical: dict[str, Any]
    """The same as plain JSON values, canonical spelling, defaults filled in."""
    topology: Topology
    notes: tuple[str, ...]
    """What is legal but worth knowing: deviations from the published recipe, fields that are ignored."""
    placeholders: tuple[str, ...]
    """Dotted keys the action uses that still hold a path under `/path/to/`."""
    placeholder_places: tuple[str, ...]
    """Where each of them is written: `file:line:column` or `--set #2`."""

    def envelope(self) -> dict[str, Any]:
        """What `config resolve` prints."""
        return {
            "schema": loading.ENVELOPE_SCHEMA,
            "source": str(self.source),
            "source_digest": self.source_digest,
            "resolved_digest": self.resolved_digest,
            "route": self.route.key,
            "config": self.canonical,
            "topology": self.topology.plain(),
            "notes": list(self.notes),
            "placeholders": list(self.placeholders),
        }


def resolve(
    path: Path,
    overrides_: Sequence[str] = (),
    *,
    files: Sequence[str] = (),
    action: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ResolvedRun:
    """The run a config describes, after `--set` and `--set-file`.

    `action` is the command that asks, where it must be the one the config is written for. Raises a
    `FaultList` with everything that is wrong; reads the file and the environment, writes nothing.
    """
    data = loading.read_bytes(path)
    document = loading.parse(path, data)
    expansion.expand(document, environ)
    overrides.apply(document, overrides_, files)
    secrets.remove(document)
    _check_action(document, action)
    row = routing.choose(document)
    if row is None:
        _unknown_sections(document)
        raise _all(document)
    notes = _drop_legacy(document, row)
    model: type[BaseModel] = load(row.config_model)
    spec: BackboneSpec = load(row.backbone_spec)
    aliases.rename(document, model)
    facts = Facts(spec=spec, profile=_profile(document, spec), config=document.values)
    filled = fill(model, document.values, facts)
    config = validate(document, model, filled)
    used = Facts(spec=spec, profile=facts.profile, config=filled)
    inputs = inputs_of(_with_defaults(config, filled), used)
    clip = geometry_findings(used, row.frames)
    found: list[Finding] = _bound(model, filled, facts, clip)
    if config is not None:
        rules = load(row.config_model.partition(":")[0] + ":rules")
        found += rules(config, spec, facts.profile)
    fixed_size = facts.released and bool(row.frames)
    ordered = [*clip, *found] if fixed_size else [*found, *clip]
    _keep(document, [*ordered, *check_topology(inputs)])
    places.check(document, model, filled, str(filled["action"]))
    if document.faults or config is None:
        raise _all(document)
    canonical = config.model_dump(mode="json", by_alias=True)
    open_paths = places.placeholders(model, canonical, str(canonical["action"]))
    if open_paths:
        loading.locate(document, path, data)
    return ResolvedRun(
        source=path.resolve(),
        source_digest=blake2s_hex(data),
        resolved_digest=blake2s_hex(canonical_json(canonical)),
        route=route_spec(row),
        config=config,  # type: ignore[arg-type]
        canonical=canonical,
        topology=build(inputs),
        notes=(*notes, *deviations(model, document.values, facts)),
        placeholders=tuple(map(dotted, open_paths)),
        placeholder_places=tuple(map(document.place, open_paths)),
    )


def require_no_placeholders(
    resolved: ResolvedRun, *, unread: str | None = None, only: str | None = None
) -> None:
    """Refuse (exit 2) a run that would read a path nobody filled in; the section `unread` is not
    read, and where `only` is given nothing but that section is."""
    open_ = [
        (name, place)
        for name, place in zip(resolved.placeholders, resolved.placeholder_places, strict=True)
        if (unread is None or not name.startswith(f"{unread}."))
        and (only is None or name.startswith(f"{only}."))
    ]
    if not open_:
        return
    raise FaultList(
        [
            SolarError(
                "config.placeholder",
                f"{name} is still a placeholder",
                where=place,
                why="paths under /path/to/ stand for ones you have to give",
                fixes=[f"--set {name}=/your/path"],
                context={"path": name},
            )
            for name, place in open_
        ]
    )


def _bound(
    model: type[BaseModel], filled: dict[str, Any], facts: Facts, clip: Sequence[Finding]
) -> list[Finding]:
    """Values that contradict the profile; not those that only follow from a wrong clip length."""
    found = binding_faults(model, filled, facts)
    wrong = next((item for item in clip if item.path == ("data", "pixel_frames")), None)
    meant = re.search(r"=(\d+)$", wrong.fixes[0]) if wrong is not None and wrong.fixes else None
    if meant is None or not is_mapping(facts.config.get("data")):
        return found
    data = {**facts.config["data"], "pixel_frames": int(meant[1])}
    mended = Facts(spec=facts.spec, profile=facts.profile, config={**facts.config, "data": data})
    still = {item.path for item in binding_faults(model, filled, mended)}
    return [item for item in found if item.path in still]


def _keep(document: Document, found: Sequence[Finding]) -> None:
    """Keep findings, but one about the size of a clip, none where a value has a wrong type, and none
    that rests on a number already refused."""
    told = {fault.context.get("path") for fault in document.faults}
    ranks = {"distributed.world_size", "distributed.sequence_parallel_size"}
    batch = ranks | {f"train.{key}" for key in ("micro_batch_size", "grad_accum")}
    resting = {"config.topology": ranks, "config.batch": batch}
    found = [item for item in found if not told & resting.get(item.code, set())]
    seen: set[tuple[str, str]] = set()
    for finding in found:
        key = (finding.code, finding.dotted)
        if finding.dotted not in told and key not in seen:
            document.find(finding)
        if finding.code == "config.geometry":
            seen.add(key)


def _check_action(document: Document, action: str | None) -> None:
    written = document.values.get("action")
    if action is None or written == action or written not in routing.ACTIONS:
        return
    document.fault(
        "cli.action-mismatch",
        ("action",),
        f"this config is for `solarwm {written}`, not `solarwm {action}`",
        fixes=[f"solarwm {written} --config {document.source}"],
    )


def _profile(document: Document, spec: BackboneSpec) -> Profile:
    name = get(document.values, "model", "profile")
    if name is None:
        name = "released"
    profile = spec.profiles.get(name) if isinstance(name, str) else None
    if profile is not None:
        return profile
    document.fault(
        "config.value" if isinstance(name, str) else "config.type",
        ("model", "profile"),
        f"model.profile must be one of {', '.join(spec.profiles)}, not {shown(name)}",
        why=f"these are the sizes of {spec.title}",
        fixes=[f"--set model.profile={known}" for known in spec.profiles],
    )
    document.values["model"]["profile"] = "released"
    return spec.profiles["released"]


def _drop_legacy(document: Document, row: Route) -> list[str]:
    """Take out fields of published files that mean nothing here; gives the notes about them."""
    module = import_module(row.config_model.partition(":")[0])
    dropped: Mapping[str, tuple[object, str]] = getattr(module, "DROPPED", {})
    notes: list[str] = []
    for name, (accepted, note) in dropped.items():
        *parents, leaf = name.split(".")
        section = get(document.values, *parents)
        if is_mapping(section) and leaf in section and section[leaf] == accepted:
            del section[leaf]
            notes.append(note)
    return notes


def _unknown_sections(document: Document) -> None:
    for key in document.values:
        if key not in routing.SECTIONS:
            document.fault(
                "config.unknown-key",
                (key,),
                f"{key} is not a key of the top level",
                why=f"legal keys: {', '.join(routing.SECTIONS)}",
                fixes=["remove the key"],
            )


def _with_defaults(config: BaseModel | None, filled: dict[str, Any]) -> dict[str, Any]:
    return filled if config is None else config.model_dump(mode="json", by_alias=True)


def _all(document: Document) -> FaultList:
    """Every fault once, in the order of the file, overrides last."""
    unique: dict[tuple[str, str, str], SolarError] = {}
    for fault in document.faults:
        unique.setdefault((fault.code, fault.where or "", fault.headline), fault)

    def order(fault: SolarError) -> tuple[bool, int, int]:
        where = fault.where or ""
        numbers = [
            int(number) for number in re.findall(r"[:#](\d+)", where.removeprefix(document.source))
        ]
        line, column = [*numbers, 0, 0][:2]
        return where.startswith("--"), line, column

    faults = sorted(unique.values(), key=order)
    count = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
    return FaultList(faults, headline=f"{count} in {document.source}")
