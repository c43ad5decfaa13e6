"""The interface changes only on purpose: commands, options, config keys, exit codes, keys of files."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    spec = spec_from_file_location("write_interface", ROOT / "tools" / "write_interface.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.interface()


@pytest.mark.parametrize("part", ["commands", "config_keys", "exit_codes", "files"])
def test_the_interface_is_the_recorded_one(part: str, now: dict[str, Any]) -> None:
    recorded = json.loads(Path(__file__).with_name("interface.json").read_text())
    hint = "if the change is meant: python tools/write_interface.py, then read the diff"
    assert now[part] == recorded[part], hint


def test_the_published_commands_and_options_are_there(now: dict[str, Any]) -> None:
    commands = now["commands"]
    for name in ("train", "infer", "preencode", "config resolve"):
        assert {"--config", "--set"} <= set(commands[name])
    assert "--output" in commands["config resolve"]
    assert {"config routes", "data inspect", "data plan", "environment probe"} <= set(commands)
