"""The accelerator check: skipped with a line where there is no device, and its chain walked on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so_and_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "gpu_check: no CUDA device here, nothing checked\n"


def test_the_chain_of_the_check_holds_on_the_cpu_and_a_difference_is_a_fault(
    capsys, monkeypatch
) -> None:
    from benchmarks import gpu_check

    monkeypatch.setattr(gpu_check, "STEPS", 1)
    monkeypatch.setattr(gpu_check, "BF16_TOLERANCE", -1.0)
    faults = gpu_check.check_chain(gpu_check.TINY, torch.device("cpu"))
    routes = [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()]
    assert routes == [
        "tiny, stage0p5 flow matching",
        "tiny, stage1 flow matching",
        "tiny, stage1 AnyFlow",
        "tiny, stage2 student",
        "tiny, stage2 critic",
    ]
    assert [fault.split(": ")[0] for fault in faults] == routes
    assert all("bf16 is" in fault for fault in faults)


@pytest.mark.bench
def test_every_ratio_of_a_device_is_measured(monkeypatch) -> None:
    from benchmarks import device_ratios
    from benchmarks.step import SIZES

    monkeypatch.setattr(device_ratios, "ROUNDS", 1)
    monkeypatch.setattr(device_ratios, "SIZES", (SIZES[0], SIZES[0]))
    names = [row.name for row in device_ratios.rows(torch.device("cpu"))]
    assert len(names) == 6
    assert sum("rollout" in name for name in names) == 3
