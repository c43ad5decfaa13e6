"""The package as a wheel lays it out: away from the checkout, examples inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_examples_are_found_inside_an_installed_package(tmp_path: Path) -> None:
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
    shutil.copytree(ROOT / "solarwm", site / "solarwm", ignore=ignored)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in wheel.items():
        shutil.copytree(ROOT / source, site / target)
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", "config", "list"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
    )
    found = json.loads(done.stdout)
    assert len(found) == len(list((ROOT / "configs" / "examples").glob("*/*.yaml")))
    assert all(Path(item["path"]).is_relative_to(site) for item in found)
