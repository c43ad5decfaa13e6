"""Every error says what to do, and names only commands that exist."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
import typer

from solarwm.cli.commands import COMMANDS
from solarwm.errors.catalog import CATALOG
from solarwm.errors.remedies import _BY_CODE, _BY_KIND, remedy
from solarwm.errors.render import render_json, render_text
from solarwm.errors.types import SolarError

PACKAGE = Path(__file__).parents[3] / "solarwm"
RAISERS = {"SolarError", "fault", "_fault"}


def _calls() -> list[tuple[str, ast.Call]]:
    found: list[tuple[str, ast.Call]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in RAISERS and node.args:
                    found.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", node))
    return found


def _codes(node: ast.expr) -> list[str]:
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and text in CATALOG]


def test_every_place_that_raises_gives_a_fix_or_its_kind_has_one() -> None:
    calls = _calls()
    assert len(calls) > 150
    bare = [
        f"{place}: {code}"
        for place, node in calls
        if not any(word.arg == "fixes" for word in node.keywords)
        for code in _codes(node.args[0])
        if not remedy(code)
    ]
    assert bare == []


def test_every_code_of_the_catalogue_has_a_remedy_in_words_of_its_own() -> None:
    kinds = {code for code in CATALOG if code not in _BY_CODE}
    assert sorted(code for code in CATALOG if not remedy(code)) == []
    # The word for a whole kind must be enough for few.
    assert sorted(code for code in kinds if _BY_KIND.get(code.partition(".")[0]) is None) == []
    assert len(kinds) < len(CATALOG) // 4


def test_every_place_of_the_config_desk_gives_a_fix_of_its_own() -> None:
    said_elsewhere = {"config.syntax", "config.too-complex"}
    bare = [
        place
        for place, node in _calls()
        if place.startswith("config/")
        and not any(word.arg == "fixes" for word in node.keywords)
        and not set(_codes(node.args[0])) & said_elsewhere
    ]
    assert bare == []


def test_remedies_are_for_codes_and_kinds_that_exist() -> None:
    assert set(_BY_CODE) <= set(CATALOG)
    assert set(_BY_KIND) <= {code.partition(".")[0] for code in CATALOG}


def test_commands_named_in_texts_of_the_package_exist() -> None:
    named: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(
                    re.findall(
                        r"solarwm ((?:config|data|run|checkpoint|environment) [a-z][a-z0-9-]+)",
                        node.value,
                    )
                )
    known = _commands()
    assert len(named) > 5
    assert sorted(name for name in named if name not in known) == []


def _commands() -> set[str]:
    found: set[str] = set()
    for name, entry in COMMANDS.items():
        target = getattr(import_module(entry.module), entry.attribute)
        if isinstance(target, typer.Typer):
            command = typer.main.get_command(target)
            found |= {f"{name} {inner}" for inner in getattr(command, "commands", {})}
        else:
            found.add(name)
    return found


@pytest.mark.parametrize("code", ["shard.truncated", "video.undecodable", "camera.shape"])
def test_an_error_without_a_fix_shows_the_one_of_its_kind(code: str) -> None:
    error = SolarError(code, "headline")
    assert f"fix  {remedy(code)}" in render_text(error)
    (fault,) = render_json(error)["faults"]  # type: ignore[misc]
    assert fault["fixes"] == [remedy(code)]
