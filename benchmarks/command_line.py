"""Start-up of the command line against bare Typer and pydantic programs (targets of the design, 1.1)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.ratio import Ratio, measure, run_quietly

BARE_APP = """
import typer
app = typer.Typer()
@app.command()
def one(name: str = "x") -> None: "First."
@app.command()
def two(name: str = "y") -> None: "Second."
app()
"""

BARE_RESOLVE = """
import sys, typer, yaml
from pydantic import BaseModel
class Run(BaseModel):
    a: int; b: int; c: int; d: int; e: float; f: float; g: float; h: str; i: str; j: str; k: bool; l: bool
loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
text = "a: 1\\nb: 2\\nc: 3\\nd: 4\\ne: 1.0\\nf: 2.0\\ng: 3.0\\nh: x\\ni: y\\nj: z\\nk: true\\nl: false\\n"
print(Run.model_validate(yaml.load(text, Loader=loader)).model_dump_json())
"""


def rows(*, rounds: int) -> list[Ratio]:
    """Help, route list, resolve, a Tab and mistakes, each in fresh processes, page cache warm."""
    solarwm = [sys.executable, "-m", "solarwm"]
    config = "configs/examples/wan22_ti2v_5b/train_stage0p5_fm_81f.yaml"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryDirectory() as folder:
        bare_app = Path(folder) / "bare_app.py"
        bare_app.write_text(BARE_APP)
        bare_resolve = Path(folder) / "bare_resolve.py"
        bare_resolve.write_text(BARE_RESOLVE)
        bare_help = run_quietly([sys.executable, str(bare_app), "--help"], env)
        bare_run = run_quietly([sys.executable, str(bare_app), "one"], env)
        model = run_quietly([sys.executable, str(bare_resolve)], env)
        cases = [
            ("solarwm --help", [*solarwm, "--help"], bare_help, "bare Typer --help", 1.4),
            (
                "solarwm config routes",
                [*solarwm, "config", "routes"],
                bare_run,
                "bare Typer command",
                1.2,
            ),
            ("solarwm --version", [*solarwm, "--version"], bare_run, "bare Typer command", 1.2),
            (
                "solarwm config resolve",
                [*solarwm, "config", "resolve", "--config", config],
                model,
                "typer + yaml + one 12-field model",
                1.6,
            ),
        ]
        tab = {
            "_SOLARWM_COMPLETE": "complete_bash",
            "COMP_WORDS": "solarwm config re",
            "COMP_CWORD": "2",
        }
        our_help = run_quietly([*solarwm, "--help"], env)
        unknown_key = [
            *solarwm,
            "config",
            "resolve",
            "--config",
            config,
            "--set",
            "train.lerning_rate=1",
        ]
        calls = [
            (name, run_quietly(command, env), anchor, label, target)
            for name, command, anchor, label, target in cases
        ] + [
            ("a Tab", run_quietly(solarwm, env | tab), bare_run, "bare Typer command", 1.2),
            (
                "a wrong command",
                run_quietly([*solarwm, "trian"], env, code=2),
                our_help,
                "solarwm --help",
                1.2,
            ),
            (
                "a wrong option",
                run_quietly([*solarwm, "config", "resolve", "--confg", "x"], env, code=2),
                our_help,
                "solarwm --help",
                1.2,
            ),
            (
                "a wrong config key",
                run_quietly(unknown_key, env, code=2),
                run_quietly([*solarwm, "config", "resolve", "--config", config], env),
                "solarwm config resolve",
                1.2,
            ),
        ]
        return [
            measure(name, call, anchor, anchor_name=label, target=target, rounds=rounds)
            for name, call, anchor, label, target in calls
        ]
