"""Everything a start would do up to the first allocation, and what would stop it. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.errors.types import FaultList, SolarError

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

SCHEMA = "solarwm.dry-run.v1"
_FIRST_ROWS = 3


def dry_run(
    resolved: ResolvedRun,
    *,
    command: str,
    environ: Mapping[str, str] = os.environ,
    working_directory: Path | None = None,
) -> dict[str, Any]:
    """The report of a dry run as JSON values; `exit_code` is the code a real start would end with.

    Reads the launcher variables, the existence of assets, the first index rows; builds model and optimizer on
    the meta device when torch is installed.
    """
    faults: list[SolarError] = []
    launcher = _launcher(resolved, command, environ, faults)
    _placeholders(resolved, faults)
    root = _run_directory(resolved, working_directory or Path.cwd())
    assets = _assets(resolved, faults)
    indexes = _indexes(resolved, faults)
    model = _model(resolved, command, faults)
    return {
        "schema": SCHEMA,
        "command": command,
        "name": resolved.config.name,
        "route": resolved.route.key,
        "source": str(resolved.source),
        "resolved_digest": resolved.resolved_digest,
        "run_directory": str(root),
        "topology": resolved.topology.plain(),
        "notes": list(resolved.notes),
        "placeholders": list(resolved.placeholders),
        "launcher": launcher,
        "assets": assets,
        "indexes": indexes,
        "model": model,
        "files": _files(resolved, command, root),
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


def _placeholders(resolved: ResolvedRun, faults: list[SolarError]) -> None:
    from solarwm.config.resolve import require_no_placeholders

    try:
        require_no_placeholders(resolved)
    except SolarError as error:
        _keep(faults, error)


def _run_directory(resolved: ResolvedRun, working_directory: Path) -> Path:
    return (working_directory / Path(resolved.config.runtime.output_dir).expanduser()).absolute()


def _assets(resolved: ResolvedRun, faults: list[SolarError]) -> list[dict[str, Any]]:
    """Every local file or directory that the model and checkpoint sections name."""
    canonical = resolved.canonical
    model, checkpoint = canonical.get("model", {}), canonical.get("checkpoint", {})
    base = model.get("base_path")
    named: list[tuple[str, str]] = []
    if base:
        named.append(("model.base_path", base))
    for key, value in (model.get("assets") or {}).items():
        if value and value != "builtin":
            place = value if os.path.isabs(value) or not base else os.path.join(base, value)
            named.append((f"model.assets.{key}", place))
    for key in ("checkpoint_path", "adapter_checkpoint_path"):
        if model.get(key):
            named.append((f"model.{key}", model[key]))
    for key in ("path", "resume_from"):
        if checkpoint.get(key) and (
            checkpoint.get("mode") != "none" or canonical["action"] != "train"
        ):
            named.append((f"checkpoint.{key}", checkpoint[key]))
    for role, value in (checkpoint.get("roles") or {}).items():
        if isinstance(value, dict) and value.get("path"):
            named.append((f"checkpoint.roles.{role}.path", value["path"]))
    transport = canonical.get("data", {}).get("transport") or {}
    if transport.get("kind", "local") == "local" and transport.get("root"):
        named.append(("data.transport.root", transport["root"]))
    found: list[dict[str, Any]] = []
    for key, place in named:
        if place.startswith("/path/to/"):
            found.append({"key": key, "path": place, "present": False})
            continue
        present = os.path.exists(place)
        found.append({"key": key, "path": place, "present": present})
        if not present:
            faults.append(
                SolarError(
                    "assets.missing",
                    f"{key} names a path that does not exist",
                    where=place,
                    fixes=[f"--set {key}=..."],
                    context={"path": key},
                )
            )
    return found


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
        faults.append(
            SolarError(
                "cli.not-available",
                f"{command} of {resolved.route.key} is not in this release",
                why="the config desk knows the route; its model is not built yet",
            )
        )
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


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _files(resolved: ResolvedRun, command: str, root: Path) -> list[str]:
    names = [
        "run.lock",
        "resolved-config.json",
        "launch-manifest.json",
        "run-result.json",
        *(
            f"events/rank-{world_rank:05d}.jsonl"
            for world_rank in range(min(resolved.topology.world_size, 8))
        ),
    ]
    if resolved.topology.world_size > 8:
        names.append(f"events/... ({resolved.topology.world_size - 8} more ranks)")
    if command == "train":
        config = resolved.config
        every, steps = config.save_every, config.train.max_steps
        saves = list(range(every, steps + 1, every)) if every else []
        shown = saves if len(saves) <= 4 else [*saves[:2], saves[-1]]
        names += [f"checkpoint_model_{step:06d}/" for step in shown]
        if len(saves) > len(shown):
            names.append(f"checkpoint_model_... ({len(saves) - len(shown)} more)")
    if command == "infer":
        passes = resolved.canonical.get("validation", {}).get("passes") or []
        named = [item["name"] if isinstance(item, dict) else str(item) for item in passes]
        names += ["generation/plan.json"]
        names += [f"generation/{name}/" for name in named]
        names += ["generation/quality.json", "generation/COMPLETE.json"]
    return [str(root / name) for name in names]
