"""How a config is started on machines: the torchrun command of every node, a SLURM script, a Kubernetes
manifest. Plain values and text; nothing is started here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

PORT = 29500
GPUS_PER_NODE = 8
INHERITED = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PET_NNODES", "PET_NPROC_PER_NODE"),
)
"""Variables of another launch: torchrun would take them over, or a process think itself part of one."""
GRACE_S = 180
"""Seconds between the warning of a scheduler and its kill: time to finish a step and save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Nodes, processes a node, and what each runs."""

    name: str
    action: str
    nodes: int
    processes_per_node: int
    host: str
    port: int
    arguments: tuple[str, ...]
    """What follows `-m solarwm`."""

    def command(self, node: int | str, *, host: str | None = None) -> list[str]:
        """The words node `node` runs; `host` stands in for the address of the first node."""
        words = ["torchrun"]
        if self.nodes == 1:
            words += ["--standalone"]
        else:
            words += [
                f"--nnodes={self.nodes}",
                f"--node-rank={node}",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={host or self.host}:{self.port}",
                f"--rdzv-id={self.name}",
            ]
        words += [f"--nproc-per-node={self.processes_per_node}", "-m", "solarwm"]
        return [*words, *self.arguments]

    def lines(self) -> list[str]:
        """The command of every node, each fit to be pasted into a shell."""
        return [shlex.join(self.command(node)) for node in range(self.nodes)]


def plan_launch(
    resolved: ResolvedRun,
    arguments: Sequence[str],
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    host: str = "FIRST_NODE",
    port: int = PORT,
) -> LaunchPlan:
    """The plan of a config on `nodes` machines of `gpus` devices; what is not given follows from the
    config's world size.

    Raises `launcher.mismatch` (exit 5) when they do not make the world size, or split ranks that
    share a clip in the published order.
    """
    world = resolved.topology.world_size
    if nodes is None:
        nodes = -(-world // gpus) if gpus else resolved.topology.nodes or -(-world // GPUS_PER_NODE)
    if gpus is None:
        gpus = world // nodes if nodes and world % nodes == 0 else 0
    if nodes < 1 or gpus < 1 or nodes * gpus != world:
        raise SolarError(
            "launcher.mismatch",
            f"{nodes} nodes of {gpus or '?'} devices are not the {world} processes of the config",
            where="--nodes, --gpus",
            why=f"distributed.world_size is {world}",
            fixes=[
                f"--nodes {n} --gpus {world // n}" for n in range(1, world + 1) if world % n == 0
            ][:3],
        )
    return LaunchPlan(
        name=_slug(resolved.config.name),
        action=resolved.config.action,
        nodes=nodes,
        processes_per_node=gpus,
        host=host,
        port=port,
        arguments=tuple(arguments),
    )


def warnings(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Variables of this shell that another launch left, one line each."""
    return [
        f"{name}={environ[name]} is set here and would be inherited: unset {name}"
        for name in INHERITED
        if environ.get(name)
    ]


def slurm_script(plan: LaunchPlan, *, hours: int = 24, partition: str | None = None) -> str:
    """A batch script: one torchrun a node, warned before the time is over so that it saves."""
    head = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={plan.name}",
        f"#SBATCH --nodes={plan.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={plan.processes_per_node}",
        f"#SBATCH --time={hours}:00:00",
        f"#SBATCH --signal=TERM@{GRACE_S}",
        "#SBATCH --requeue",
        f"#SBATCH --output={plan.name}-%j.log",
    ]
    if partition:
        head.append(f"#SBATCH --partition={partition}")
    words = plan.command("__NODE__", host="__HOST__")
    command = (
        shlex.join(words).replace("__NODE__", '"$SLURM_NODEID"').replace("__HOST__", '"$FIRST"')
    )
    unset = " ".join(INHERITED)
    return "\n".join(
        (
            *head,
            "",
            "set -euo pipefail",
            f"unset {unset} || true",
            # No pipe into head: with pipefail a long list of nodes would end the script.
            'FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
            "export FIRST=${FIRST%%$'\\n'*}",
            f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(command)}",
            "",
        )
    )


def kubernetes_manifest(plan: LaunchPlan, *, image: str, kind: str = "pytorchjob") -> str:
    """A PyTorchJob or a JobSet as YAML. The image brings solarwm; volumes are the cluster's own."""
    make = _pytorch_job if kind == "pytorchjob" else _job_set
    return yaml.safe_dump(make(plan, image), sort_keys=False, width=1000)


def _pytorch_job(plan: LaunchPlan, image: str) -> dict[str, Any]:
    # The operator gives every pod MASTER_ADDR and its node's rank as RANK.
    words = plan.command("$(RANK)", host="$(MASTER_ADDR)")

    def replica(count: int) -> dict[str, Any]:
        template = {"spec": _pod(plan, image, words)}
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    replicas = {"Master": replica(1)}
    if plan.nodes > 1:
        replicas["Worker"] = replica(plan.nodes - 1)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": plan.name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def _job_set(plan: LaunchPlan, image: str) -> dict[str, Any]:
    host = f"{plan.name}-node-0-0.{plan.name}"
    words = plan.command("$(JOB_COMPLETION_INDEX)", host=host)
    job = {
        "parallelism": plan.nodes,
        "completions": plan.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", **_pod(plan, image, words)}},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": plan.name},
        "spec": {
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
        },
    }


def _pod(plan: LaunchPlan, image: str, words: list[str]) -> dict[str, Any]:
    return {
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [
            {
                "name": "pytorch",
                "image": image,
                "command": list(words),
                "resources": {"limits": {"nvidia.com/gpu": plan.processes_per_node}},
            }
        ],
    }


def asset_rows(resolved: ResolvedRun, root: Path) -> list[dict[str, Any]]:
    """What the config names, the index files and the output root: present, missing or of the wrong
    kind, with sizes and free space."""
    from solarwm.runs.assets import named

    rows = [_asset(asset.key, asset.path) for asset in named(resolved)]
    data: Any = getattr(resolved.config, "data", None)
    for key in ("train_index", "test_index", "index"):
        value = getattr(data, key, None)
        place = getattr(data, "index_root", None) or getattr(data.transport, "root", None)
        if value and place and "://" not in str(place):
            rows.append(_asset(f"data.{key}", os.path.join(str(place), value)))
    from solarwm.storage.space import free_bytes

    parent = next(path for path in (root, *root.parents) if path.exists())
    writable = os.access(parent, os.W_OK)
    rows.append(
        {
            "key": "runtime.output_dir",
            "path": str(root),
            "state": "present" if writable else "not writable",
            "bytes": None,
            "free_bytes": free_bytes(parent),
        }
    )
    return rows


def _asset(key: str, path: str) -> dict[str, Any]:
    from solarwm.config.places import is_placeholder

    place = Path(path)
    state, size = "missing", None
    if is_placeholder(path):
        state = "placeholder"
    elif place.exists():
        wants_file = place.suffix in (".pth", ".pt", ".safetensors", ".json", ".gz", ".jsonl")
        state = "wrong kind" if wants_file != place.is_file() else "present"
        if place.is_file():
            size = place.stat().st_size
            state = "wrong kind" if size == 0 else state
    return {"key": key, "path": path, "state": state, "bytes": size, "free_bytes": None}


def _slug(name: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
    return kept.strip("-")[:50] or "run"
