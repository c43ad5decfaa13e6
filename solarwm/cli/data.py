"""`solarwm data`: the group; each command has a file of its own."""

from __future__ import annotations

import typer

from solarwm.cli.data_import import import_
from solarwm.cli.data_inspect import inspect
from solarwm.cli.data_negative import encode_negative
from solarwm.cli.data_plan import plan
from solarwm.cli.data_synthesize import synthesize
from solarwm.cli.data_validate import validate
from solarwm.cli.data_warm_cache import warm_cache
from solarwm.cli.data_windows import materialize_wan153f

group = typer.Typer(
    help="Indexes, plans, validation, import, caches and the local world.",
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
    "materialize-wan153f": (
        materialize_wan153f,
        "materialize-wan153f --train-index raw/train-index.jsonl.gz "
        "--test-index raw/test-index.jsonl.gz "
        "--train-window-index latent/train-index.jsonl.gz "
        "--test-window-index latent/test-index.jsonl.gz --output windows.jsonl.gz",
    ),
    "encode-negative": (
        encode_negative,
        "encode-negative --config configs/examples/quickstart/stage0p5.yaml "
        "--prompt 'blurred, watermark' --out negative.pth",
    ),
    "warm-cache": (
        warm_cache,
        "warm-cache index.jsonl.gz --root gs://bucket/set --cache-dir cache --max-gib 256",
    ),
}
for _name, (_function, _example) in _COMMANDS.items():
    group.command(_name, epilog=f"Example: solarwm data {_example}")(_function)
