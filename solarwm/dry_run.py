"""Everything a start would do up to the first allocation, and what would stop it. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.errors.types import FaultList, SolarError
from solarwm.runs.layout import RunLayout
from solarwm.storage.locks import LOCK_NAME

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.inference.own_clip import OwnRequest

SCHEMA = "solarwm.dry-run.v1"
_FIRST_ROWS = 3
_FIRST_RANKS = 8
LAUNCH = 5
"""Exit code of what another launch of the same config mends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Options of the start that is asked about."""

    resume: str | None = None
    """`latest`, a path, or None for a new run."""
    allow_fresh: bool = False
    first_row: bool = False
    own: OwnRequest | None = None
    """A picture and camera of the user's, for `infer`."""


def dry_run(
    resolved: ResolvedRun,
    *,
    command: str,
    options: StartOptions = StartOptions(),
    environ: Mapping[str, str] = os.environ,
    working_directory: Path | None = None,
) -> dict[str, Any]:
    """The report of a dry run as JSON values; `exit_code` is the code a real start would end with.

    Reads the launcher variables, the existence of assets, the first index rows; builds model and optimizer on
    the meta device when torch is installed.
    """
    faults: list[SolarError] = []
    _route(resolved, command, faults)
    _placeholders(resolved, options.own, faults)
    launcher = _launcher(resolved, command, environ, faults)
    root = _run_directory(resolved, working_directory or Path.cwd())
    assets = _assets(resolved, faults)
    indexes = _indexes(resolved, faults)
    model = _model(resolved, command, faults)
    resumed = None
    if all(fault.exit_code == LAUNCH for fault in faults):
        resumed = _start(resolved, command, root, options, faults)
    if command == "infer":
        root = _generation_root(resolved, root, options)
    return {
        "schema": SCHEMA,
        "command": command,
        "name": resolved.config.name,
        "route": resolved.route.key,
        "source": str(resolved.source),
        "resolved_digest": resolved.resolved_digest,
        "run_directory": str(root),
        "resumes": resumed,
        "topology": resolved.topology.plain(),
        "notes": list(resolved.notes),
        "placeholders": list(resolved.placeholders),
        "launcher": launcher,
        "assets": assets,
        "indexes": indexes,
        "model": model,
        "files": planned_files(resolved, command, root),
        "faults": [
            {
                "code": fault.code,
                "exit_code": fault.exit_code,
                "headline": fault.headline,
                "where": fault.where,
                "why": fault.why,
                "fixes": list(fault.fixes),
            }
            for fault in faults
        ],
        "exit_code": faults[0].exit_code if faults else 0,
    }


def _keep(faults: list[SolarError], error: SolarError) -> None:
    faults.extend(error.faults if isinstance(error, FaultList) else [error])


def _launcher(
    resolved: ResolvedRun, command: str, environ: Mapping[str, str], faults: list[SolarError]
) -> dict[str, Any]:
    from solarwm.distributed.environment import REQUIRED, check_launcher, read_launcher

    seen: int | None = None
    try:
        launcher = read_launcher(environ, process_id=os.getpid())
        seen = launcher.world_size
        check_launcher(launcher, resolved.topology, command=command)
    except SolarError as error:
        _keep(faults, error)
    return {
        "variables": {name: environ.get(name) for name in REQUIRED},
        "seen": seen,
        "expected": resolved.topology.world_size,
    }


def _route(resolved: ResolvedRun, command: str, faults: list[SolarError]) -> None:
    """A route that this release cannot run is told before anything a user might fetch for it."""
    if command != "train":
        return
    from solarwm.training.opening import require_route

    try:
        require_route(resolved)
    except SolarError as error:
        _keep(faults, error)


def _placeholders(resolved: ResolvedRun, own: OwnRequest | None, faults: list[SolarError]) -> None:
    from solarwm.config.resolve import require_no_placeholders

    try:
        require_no_placeholders(resolved, unread="data" if own is not None else None)
    except SolarError as error:
        _keep(faults, error)


def _run_directory(resolved: ResolvedRun, working_directory: Path) -> Path:
    return (working_directory / Path(resolved.config.runtime.output_dir).expanduser()).absolute()


def _generation_root(resolved: ResolvedRun, output: Path, options: StartOptions) -> Path:
    from solarwm.inference.publication import generation_root

    try:
        return generation_root(resolved, output, own=options.own is not None)
    except SolarError:
        return output  # told by the start itself


def _assets(resolved: ResolvedRun, faults: list[SolarError]) -> list[dict[str, Any]]:
    from solarwm.runs import assets

    try:
        assets.require(resolved)
    except SolarError as error:
        _keep(faults, error)
    return [
        {"key": asset.key, "path": asset.path, "present": asset.present}
        for asset in assets.named(resolved)
    ]


def _indexes(resolved: ResolvedRun, faults: list[SolarError]) -> list[dict[str, Any]]:
    data = resolved.canonical.get("data", {})
    transport = data.get("transport") or {}
    root = data.get("index_root") or transport.get("root") or ""
    wanted = {
        "train": ("train_index", "index"),
        "infer": ("test_index", "index"),
        "preencode": ("index",),
    }
    found: list[dict[str, Any]] = []
    for name in wanted[str(resolved.canonical["action"])]:
        key = data.get(name)
        if not key or root.startswith("/path/to/") or "://" in root:
            continue
        place = Path(root) / key
        entry: dict[str, Any] = {"key": f"data.{name}", "path": str(place), "first_samples": []}
        found.append(entry)
        from solarwm.data.index import head_rows

        try:
            rows = head_rows(place, _FIRST_ROWS)
            entry["first_samples"] = [row.sample_id for row in rows]
        except SolarError as error:
            _keep(faults, error)
    return found


def _model(resolved: ResolvedRun, command: str, faults: list[SolarError]) -> dict[str, Any]:
    profile = resolved.config.model.profile
    report: dict[str, Any] = {"profile": profile, "parameters": None, "reason": ""}
    if command == "preencode":
        report["reason"] = "preencoding builds no transformer"
        return report
    if find_spec("torch") is None:
        report["reason"] = "torch is not installed"
        faults.append(
            SolarError(
                "train.extra-missing",
                "torch is not installed",
                fixes=["pip install 'solarwm[run]'"],
            )
        )
        return report
    from solarwm.config.route import load

    spec = resolved.route.spec
    heavy = spec.heavy.partition(":")[0]
    if not _exists(heavy):
        report["reason"] = f"{spec.title} cannot be run in this release"
        return report
    import torch

    backbone = load(spec.heavy)(spec.profiles[profile], resolved.config.model)
    module = backbone.build(device="meta", seed=0)
    parameters = [item for item in module.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1.0)
    count = sum(item.numel() for item in module.parameters())
    trained = sum(item.numel() for group in optimizer.param_groups for item in group["params"])
    return report | {
        "parameters": count,
        "trainable": trained,
        "weight_bytes": sum(item.numel() * item.element_size() for item in module.parameters()),
        "optimizer_bytes": 2 * 4 * trained,
        "device": "meta",
    }


def _start(
    resolved: ResolvedRun,
    command: str,
    root: Path,
    options: StartOptions,
    faults: list[SolarError],
) -> dict[str, Any] | None:
    """What the command itself refuses before it writes, found by the command's own checks.

    Gives the checkpoint a training would go on from, if one.
    """
    try:
        if command == "train":
            from solarwm.training import resuming
            from solarwm.training.run import check_config, check_files

            check_config(resolved)
            source = resuming.find(
                resolved,
                RunLayout(root),
                resume=options.resume,
                allow_fresh=options.allow_fresh,
            )
            check_files(resolved, root, source)
            if source.checkpoint is not None:
                return {"checkpoint": str(source.checkpoint), "step": source.step}
        elif command == "infer":
            from solarwm.inference.prepared import check_files as check_generation

            check_generation(
                resolved,
                root,
                resume=options.resume is not None,
                first_row=options.first_row,
                own=options.own,
            )
        else:
            from solarwm.inference.preencoding import check_files as check_preencoding

            check_preencoding(resolved, root)
    except SolarError as error:
        _keep(faults, error)
    return None


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def planned_files(resolved: ResolvedRun, command: str, root: Path) -> list[str]:
    names = [
        LOCK_NAME,
        "resolved-config.json",
        "launch-manifest.json",
        "run-result.json",
        *_per_rank(resolved, "events/rank-{:05d}.jsonl"),
        *_per_rank(resolved, "heartbeats/rank-{:05d}.json"),
    ]
    if command == "train":
        config = resolved.config
        every, steps = config.save_every, config.train.max_steps
        saves = list(range(every, steps + 1, every)) if every else []
        shown = saves if len(saves) <= 4 else [*saves[:2], saves[-1]]
        names += [f"checkpoint_model_{step:06d}/" for step in shown]
        if len(saves) > len(shown):
            names.append(f"checkpoint_model_... ({len(saves) - len(shown)} more)")
        if resolved.topology.validations_expected:
            names.append("validation/")
        if not resolved.canonical["data"].get("latent_cache_dir"):
            names.append("latent-cache/")
        trackers = resolved.canonical["runtime"].get("trackers") or {}
        if trackers.get("tensorboard", "off") != "off" and find_spec("tensorboard"):
            names.append("tensorboard/")
    if command == "infer":
        passes = resolved.canonical.get("validation", {}).get("passes") or []
        named = [item["name"] if isinstance(item, dict) else str(item) for item in passes]
        names += ["generation/plan.json"]
        names += [f"generation/{name}/" for name in named]
        names += ["generation/quality.json", "generation/COMPLETE.json"]
        if root.parent.name == "runs":
            places = [f"{folder}/<dataset>/<clip>" for folder in ("generate", "compare", "camera")]
            names += ["publication/", "COMPLETE.json", *(f"../../{place}" for place in places)]
    if command == "preencode":
        section = resolved.canonical["preencode"]
        targets = [section.get("output_root"), section.get("logical_output_root")]
        return [*(str(root / name) for name in names), *(f"{x}/" for x in targets if x)]
    return [str(root / name) for name in names]


def _per_rank(resolved: ResolvedRun, pattern: str) -> list[str]:
    size = resolved.topology.world_size
    names = [pattern.format(world_rank) for world_rank in range(min(size, _FIRST_RANKS))]
    folder = pattern.partition("/")[0]
    return (
        [*names, f"{folder}/... ({size - len(names)} more ranks)"] if size > len(names) else names
    )
