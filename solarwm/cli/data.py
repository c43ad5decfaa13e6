"""`solarwm data`: the group; each command has a file of its own."""

from __future__ import annotations

import typer

from solarwm.cli.data_import import import_
from solarwm.cli.data_inspect import inspect
from solarwm.cli.data_plan import plan
from solarwm.cli.data_synthesize import synthesize
from solarwm.cli.data_validate import validate

group = typer.Typer(
    help="Indexes, plans, validation, import and the local world.",
    no_args_is_help=True,
    add_completion=False,
)

_COMMANDS = {
    "inspect": (inspect, "inspect world/train-index.jsonl.gz"),
    "plan": (plan, "plan world/train-index.jsonl.gz --seed 42 --pixel-frames 33"),
    "validate": (validate, "validate world/train-index.jsonl.gz --pixel-frames 33"),
    "import": (import_, "import my/videos --out world --frames 81 --fps 16 --short drop"),
    "synthesize": (
        synthesize,
        "synthesize --out world --clips 8 --frames 33 --height 64 --width 96 --seed 0",
    ),
}
for _name, (_function, _example) in _COMMANDS.items():
    group.command(_name, epilog=f"Example: solarwm data {_example}")(_function)
