"""What each command imports: counts that guard the start-up time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = "configs/examples/wan22_ti2v_5b/train_stage0p5_fm_81f.yaml"
HEAVY = {
    "pydantic",
    "pydantic_core",
    "numpy",
    "torch",
    "yaml",
    "rich",
    "orjson",
    "psutil",
    "diffusers",
    "av",
}
_PROBE = """
import sys
from solarwm.cli.app import run
before = set(sys.modules)
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    code = run(sys.argv[1:])
sys.stdout.write(f"{code}\\n" + "\\n".join(sys.modules))
"""


def modules(*args: str, code: int = 0) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *args], capture_output=True, text=True, check=True, cwd=ROOT
    )
    first, *names = done.stdout.splitlines()
    assert int(first) == code, done.stderr
    return set(names)


def tops(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("--version",),
        ("config", "--help"),
        ("config", "routes"),
        ("config", "list"),
        ("config", "routes", "--explain", "ltx25_video:stage2"),
        ("explain", "config.batch"),
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(args: tuple[str, ...]) -> None:
    names = modules(*args)
    assert tops(names) & HEAVY == set()
    assert sum(name.startswith("solarwm") for name in names) <= 18


def test_the_help_page_imports_no_command() -> None:
    names = {name for name in modules("--help") if name.startswith("solarwm.cli.")}
    assert names == {"solarwm.cli.app", "solarwm.cli.commands", "solarwm.cli.lazy"}


def test_a_wrong_command_costs_no_more_than_help() -> None:
    assert len(modules("trian", code=2)) <= len(modules("--help")) + 6
    page = len(modules("config", "resolve", "--help"))
    assert len(modules("config", "resolv", code=2)) <= page + 6
    assert len(modules("config", "resolve", "--confg", "x", code=2)) <= page + 6


def test_resolving_builds_only_the_chosen_route() -> None:
    names = modules("config", "resolve", "--config", CONFIG)
    assert tops(names) & (HEAVY - {"pydantic", "pydantic_core", "yaml"}) == set()
    rooms = {name for name in names if name.startswith("solarwm.backbones.")}
    assert all(
        name.startswith(("solarwm.backbones.wan22_5b", "solarwm.backbones.wan22_core"))
        for name in rooms
    )
    assert not any("causal" in name for name in rooms)
    assert sum(name.startswith("solarwm") for name in names) <= 64


def test_importing_the_package_imports_nothing() -> None:
    code = "import sys, solarwm, solarwm.api; print(len([n for n in sys.modules if n.startswith('solarwm')]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(done.stdout) <= 2
