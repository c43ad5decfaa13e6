"""Writes tests/cli/interface.json: run it when the interface changes on purpose, and read the diff."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "cli" / "interface.json"
EXAMPLE = ROOT / "configs" / "examples" / "quickstart" / "stage0p5.yaml"


def interface() -> dict[str, Any]:
    """Commands with their options, config keys by route, exit codes, keys of the written files."""
    return {
        "commands": _commands(),
        "config_keys": _config_keys(),
        "exit_codes": _exit_codes(),
        "files": _files(),
    }


def _commands() -> dict[str, list[str]]:
    from solarwm.cli.commands import COMMANDS
    from solarwm.cli.lazy import load

    found: dict[str, list[str]] = {}
    for name in COMMANDS:
        command = load(name)
        children = getattr(command, "commands", None) or {}
        leaves = {f"{name} {child}": leaf for child, leaf in children.items()} or {name: command}
        for path, leaf in leaves.items():
            names: list[str] = []
            for parameter in leaf.params:
                long = [option for option in parameter.opts if option.startswith("--")]
                names.append(long[0] if long else parameter.name.upper())
            found[path] = sorted(names)
    return found


def _config_keys() -> dict[str, list[str]]:
    from solarwm.config.binding import fields
    from solarwm.config.route import load
    from solarwm.routes.table import ROOMS, ROUTES, preencode_route

    rows = {row.key: row for row in ROUTES}
    rows |= {f"{family}:preencode": preencode_route(family) for family in ROOMS}
    return {
        key: sorted(dotted for dotted, _ in fields(load(row.config_model)))
        for key, row in rows.items()
    }


def _exit_codes() -> dict[str, int]:
    from solarwm.errors.catalog import CATALOG

    return {code: entry.exit_code for code, entry in CATALOG.items()}


def _files() -> dict[str, list[str]]:
    from solarwm.config.resolve import resolve
    from solarwm.runs.layout import RunLayout
    from solarwm.runs.manifest import write_launch
    from solarwm.runs.result import write_result

    resolved = resolve(EXAMPLE)
    with tempfile.TemporaryDirectory() as folder:
        layout = RunLayout(Path(folder))
        write_launch(layout, resolved)
        write_result(layout, status="complete", exit_code=0)
        return {
            "resolve envelope": sorted(resolved.envelope()),
            "topology": sorted(resolved.topology.plain()),
            "launch-manifest.json": sorted(json.loads(layout.launch_manifest.read_text())),
            "run-result.json": sorted(json.loads(layout.result.read_text())),
        }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(interface(), indent=1, sort_keys=True) + "\n")
    print(f"wrote {TARGET.relative_to(ROOT)}")
