"""`solarwm run` and `solarwm checkpoint` as real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore

NO_TORCH = """
import sys
from solarwm.cli.app import run
code = run(sys.argv[1:])
sys.exit(99 if "torch" in sys.modules or "numpy" in sys.modules else code)
"""


def solarwm(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command; exit code 99 means that it imported torch or numpy."""
    command = [sys.executable, "-c", NO_TORCH, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def saved(root: Path) -> Path:
    """A run directory with one checkpoint of step 4."""
    root.mkdir()
    (root / "resolved-config.json").write_text("{}\n")
    facts = Facts(
        occurrences=16,
        route="f:s:c:o",
        resolved_digest="0" * 64,
        numerics="corrected",
        topology={},
        versions={},
        contract={"family": "f"},
        config={},
    )
    role = RoleState(model={"w": torch.ones(2, 3)})
    return CheckpointStore(root).save(4, CheckpointState(roles={"student": role}, facts=facts))


def test_checkpoints_are_listed_inspected_and_verified_without_torch(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    listed = solarwm("checkpoint", "list", tmp_path / "run", "--json")
    assert listed.returncode == 0, listed.stderr
    assert [entry["step"] for entry in json.loads(listed.stdout)["checkpoints"]] == [4]
    inspected = json.loads(solarwm("checkpoint", "inspect", tmp_path / "run").stdout)
    assert inspected["members"][0]["tensors"] == [
        {"name": "w", "shape": [2, 3], "dtype": "float32"}
    ]
    assert inspected["state"]["facts"]["occurrences"] == 16
    verified = solarwm("checkpoint", "verify", path, "--deep")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["digests_checked"] is True


def test_a_damaged_checkpoint_ends_with_3_and_names_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    file = path / "student-model" / "__0_0.distcp"
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    told = solarwm("checkpoint", "verify", path)
    assert told.returncode == 3
    assert str(file) in told.stderr
    assert "Traceback" not in told.stderr
    assert solarwm("checkpoint", "verify", path, "--quick").returncode == 0
    assert solarwm("checkpoint", "verify", tmp_path / "none").returncode == 3


def test_verifying_a_run_tells_of_a_later_checkpoint_that_cannot_be_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "run")
    assert solarwm("checkpoint", "verify", tmp_path / "run").returncode == 0
    later = path.with_name("checkpoint_model_000008")
    later.mkdir()
    for options in ((), ("--all",)):
        told = solarwm("checkpoint", "verify", tmp_path / "run", *options)
        assert told.returncode == 3
        assert str(later) in told.stderr
    assert solarwm("checkpoint", "verify", path).returncode == 0


def test_runs_are_listed_and_their_state_told_without_torch(tmp_path: Path) -> None:
    saved(tmp_path / "run")
    listed = solarwm("run", "list", tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert [run["state"] for run in json.loads(listed.stdout)["runs"]] == ["died"]
    status = solarwm("run", "status", tmp_path / "run", "--json")
    assert json.loads(status.stdout)["schema"] == "solarwm.run-status.v1"
    assert solarwm("run", "status", tmp_path).returncode == 3


def test_a_checkpoint_is_exported_as_a_published_package_and_told_as_one(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    config = {
        "model": {"family": "wan22_ti2v_5b", "profile": "tiny"},
        "train": {"stage": "stage0p5", "objective": "flow_matching"},
    }
    facts = Facts(
        occurrences=0,
        route="wan22_ti2v_5b:stage0p5:bidirectional:flow_matching",
        resolved_digest="0" * 64,
        numerics="corrected",
        topology={},
        versions={},
        contract={},
        config=config,
    )
    weights = {"w": torch.ones(2, 3)}
    role = RoleState(model=weights, ema=weights)
    CheckpointStore(root).save(4, CheckpointState(roles={"student": role}, facts=facts))
    package = tmp_path / "package"
    command = [sys.executable, "-m", "solarwm", "checkpoint", "export", str(root)]
    command += ["--format", "released", "--output", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["default_weights"] == "ema"
    told = json.loads(solarwm("checkpoint", "inspect", package).stdout)
    assert told["contract"]["stage"] == "stage0p5"
    assert told["weights"] == ["live", "ema"]
    assert solarwm("checkpoint", "verify", package).returncode == 0
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 5
    (package / "model.pt").write_bytes(b"short")
    assert solarwm("checkpoint", "verify", package).returncode == 3
