"""The table of commands: what `--help` shows without importing any of them, and where each one lives."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One command or command group."""

    module: str
    attribute: str
    """A `typer.Typer` (a group) or a function (one command)."""
    help: str
    example: str


COMMANDS: dict[str, Entry] = {
    "config": Entry(
        "solarwm.cli.config",
        "group",
        "Routes, examples, resolving, checking and comparing configs.",
        "solarwm config resolve --config configs/examples/quickstart/stage0p5.yaml",
    ),
    "environment": Entry(
        "solarwm.cli.environment",
        "group",
        "What this machine offers: Python, devices, optional packages.",
        "solarwm environment probe",
    ),
    "data": Entry(
        "solarwm.cli.data",
        "group",
        "Indexes, plans and the local world.",
        "solarwm data synthesize --out world --clips 8 --frames 33 --height 64 --width 96 --seed 0",
    ),
    "train": Entry(
        "solarwm.cli.train",
        "train",
        "Train the route a config names.",
        "torchrun --standalone --nproc-per-node=2 -m solarwm train --config run.yaml --resume latest",
    ),
    "infer": Entry(
        "solarwm.cli.infer",
        "infer",
        "Generate videos with a checkpoint.",
        "solarwm infer --config configs/examples/quickstart/infer.yaml --first-row",
    ),
    "play": Entry(
        "solarwm.cli.play",
        "play",
        "Walk through a world in the browser.",
        "solarwm play --config configs/examples/quickstart/infer-stage2.yaml --image first.png",
    ),
    "compare": Entry(
        "solarwm.cli.compare",
        "compare",
        "Compare two generations of the same cases.",
        "solarwm compare outputs/infer-a outputs/infer-b --out outputs/comparison",
    ),
    "validation": Entry(
        "solarwm.cli.validation",
        "group",
        "Which clips a run validates on.",
        "solarwm validation plan --config configs/examples/quickstart/infer.yaml "
        "--set data.index_root=$PWD/outputs/world --set data.transport.root=$PWD/outputs/world",
    ),
    "preencode": Entry(
        "solarwm.cli.preencode",
        "preencode",
        "Encode raw clips into a latent data set.",
        "solarwm preencode --config configs/examples/wan22_ti2v_5b/preencode_153f.yaml --dry-run",
    ),
    "launch": Entry(
        "solarwm.cli.launch",
        "launch",
        "Commands, SLURM scripts and Kubernetes manifests for a config.",
        "solarwm launch --config configs/examples/quickstart/stage0p5.yaml --dry-run",
    ),
    "preflight": Entry(
        "solarwm.cli.preflight",
        "preflight",
        "A few real steps of a config, gate by gate.",
        "solarwm preflight --config configs/examples/quickstart/stage0p5.yaml --assets-only",
    ),
    "plan": Entry(
        "solarwm.cli.plan",
        "group",
        "What a run would need, worked out without a device.",
        "solarwm plan memory --config configs/examples/quickstart/stage0p5.yaml --device-memory 8",
    ),
    "run": Entry(
        "solarwm.cli.run",
        "group",
        "Status and history of run directories.",
        "solarwm run status outputs/my-run",
    ),
    "checkpoint": Entry(
        "solarwm.cli.checkpoint",
        "group",
        "List, inspect and verify checkpoints.",
        "solarwm checkpoint verify outputs/my-run --deep",
    ),
    "explain": Entry(
        "solarwm.cli.explain",
        "explain",
        "What an error code means and how to mend it.",
        "solarwm explain config.batch",
    ),
}
