"""`solarwm environment probe`, with and without the optional packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A finder that hides packages, so that a light install is met on any machine.
_HIDDEN = """
import sys, importlib.abc
hidden = {"torch", "numpy", "diffusers", "transformers", "peft", "safetensors", "av", "fsspec", "torch_npu"}
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None
sys.meta_path.insert(0, Hide())
from solarwm.cli.app import run
code = run(sys.argv[1:])
assert not hidden & {name.partition(".")[0] for name in sys.modules}
sys.exit(code)
"""


def without_packages(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _HIDDEN, *args], capture_output=True, text=True, cwd=ROOT
    )


def test_the_probe_gives_the_published_keys_and_every_device() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", "environment", "probe"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    value = json.loads(done.stdout)
    assert {
        "python",
        "python_version",
        "torch",
        "cuda",
        "cuda_available",
        "nccl",
        "packages",
    } <= set(value)
    assert value["python"] == sys.executable
    assert value["devices"]["cpu"]["available"] is True
    assert set(value["devices"]) == {"cpu", "cuda", "npu", "xpu", "mps"}
    for item in [*value["devices"].values(), *value["optional"].values()]:
        assert item.get("available", item.get("present")) or item["reason"]


def test_the_probe_works_without_torch_and_says_why_it_is_absent() -> None:
    done = without_packages("environment", "probe")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert "torch" not in value
    assert value["packages"] == {} or "flash-attn" in value["packages"]
    assert "solarwm[run]" in value["optional"]["torch"]["reason"]
    assert value["devices"]["cuda"] == {
        "available": False,
        "count": 0,
        "reason": value["optional"]["torch"]["reason"],
    }


def test_the_config_desk_works_without_torch_and_numpy() -> None:
    config = "configs/examples/quickstart/stage0p5.yaml"
    for args in (
        ("config", "resolve", "--config", config),
        ("config", "check", config),
        ("config", "schema"),
        ("config", "list"),
        ("explain",),
        ("--help",),
    ):
        done = without_packages(*args)
        assert done.returncode == 0, done.stderr
