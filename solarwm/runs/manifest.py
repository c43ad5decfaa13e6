"""`launch-manifest.json` and `resolved-config.json`: what was started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import solarwm
from solarwm.runs.failure import clear_failures
from solarwm.runs.layout import RunLayout
from solarwm.runs.record import plain, read_object
from solarwm.runs.result import clear_result
from solarwm.runs.source import environment_facts, source_facts
from solarwm.storage.digests import blake2s_hex, canonical_json, human_json
from solarwm.storage.durable import write_bytes_atomic

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

LAUNCH_SCHEMA = "solarwm.launch.v2"


def write_launch(
    layout: RunLayout,
    resolved: ResolvedRun,
    *,
    launch: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Write both files and clear the result and failures of an earlier launch; gives the run id.

    For rank 0, locked. `launch` holds what differs from start to start (token, resumed_from,
    resumed_step); its `numerics`, if any, replaces what the config says. The run id is made by the
    first launch of a directory and kept by later ones.
    """
    manifest = launch_manifest(layout, resolved, launch=launch or {}, environ=environ)
    clear_result(layout)
    clear_failures(layout)
    write_bytes_atomic(layout.resolved_config, canonical_json(resolved.canonical))
    write_bytes_atomic(layout.launch_manifest, human_json(manifest))
    return str(manifest["run_id"])


def launch_manifest(
    layout: RunLayout,
    resolved: ResolvedRun,
    *,
    launch: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """The published keys, then ours: topology, absolute output directory, numerics, environment.

    Equal launches give equal manifests but for `launch`. `launch_identity_digest` is BLAKE2s of the
    canonical JSON of everything else but `run_id` and `launch`.
    """
    canonical = resolved.canonical
    runtime: Mapping[str, Any] = canonical.get("runtime", {})
    identity: dict[str, Any] = {
        "schema": LAUNCH_SCHEMA,
        "version": solarwm.__version__,
        "action": canonical.get("action"),
        "name": canonical.get("name"),
        "route": resolved.route.key,
        "source_config": {"path": str(resolved.source), "digest": resolved.source_digest},
        "resolved_config_digest": resolved.resolved_digest,
        "source": source_facts(Path(solarwm.__file__).parent),
        "runtime": {
            "declared_image": runtime.get("image"),
            "image_enforced": bool(runtime.get("enforce_image")),
        },
        "data": data_facts(canonical.get("data", {})),
        "checkpoint": canonical.get("checkpoint", {}),
        "metadata": canonical.get("metadata", {}),
        "topology": resolved.topology.plain(),
        "output_dir": os.path.abspath(layout.root),
        "numerics": launch.get("numerics") or numerics_of(canonical),
        "environment": environment_facts(environ),
    }
    identity = plain(identity)
    digest = blake2s_hex(canonical_json(identity))
    return identity | {
        "launch_identity_digest": digest,
        "run_id": read_run_id(layout.root) or digest[:16],
        "launch": plain(launch),
    }


def data_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """The published `data` block: the indexes a run reads, and what kind of samples it makes of
    them.
    """
    frames, size = data.get("pixel_frames"), (data.get("height"), data.get("width"))
    generation = f"{data.get('encoding')}:{frames}f:{size[0]}x{size[1]}" if frames else None
    return {
        "index": data.get("train_index") or data.get("index"),
        "test_index": data.get("test_index"),
        "generation": data.get("data_generation") or generation,
    }


def numerics_of(canonical: Mapping[str, Any]) -> str:
    """`published` or `corrected`, by the config alone (`auto` trains corrected)."""
    chosen = canonical.get("model", {}).get("numerics")
    return "published" if chosen == "published" else "corrected"


def read_launch(layout: RunLayout) -> dict[str, Any] | None:
    """The launch manifest of a run directory, or None."""
    record = read_object(layout.launch_manifest)
    return record if record is not None and record.get("schema") == LAUNCH_SCHEMA else None


def read_run_id(root: Path) -> str | None:
    """The identity of the run in a directory; None when it holds none."""
    record = read_launch(RunLayout(root))
    run_id: object = record.get("run_id") if record is not None else None
    return run_id if isinstance(run_id, str) and run_id else None
