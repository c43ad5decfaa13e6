"""Devices by name, with fakes of accelerators this machine does not have."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from solarwm.distributed.devices import BACKENDS, peak_device_bytes, pick_device, synchronize
from solarwm.errors.types import SolarError


class Fake:
    """A device module of torch with `count` devices."""

    def __init__(self, count: int) -> None:
        self.count, self.chosen, self.waits = count, [], 0

    def is_available(self) -> bool:
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def set_device(self, device: torch.device) -> None:
        self.chosen.append(device)

    def synchronize(self) -> None:
        self.waits += 1

    def max_memory_allocated(self) -> int:
        return 7 * 2**30


@pytest.fixture
def none(monkeypatch):
    for kind in ("cuda", "xpu"):
        monkeypatch.setattr(torch, kind, Fake(0))


@pytest.mark.parametrize(("kind", "backend"), [("xpu", "xccl"), ("cuda", "nccl")])
def test_auto_takes_an_accelerator_with_a_device_for_this_rank(none, monkeypatch, kind, backend):
    fake = Fake(4)
    monkeypatch.setattr(torch, kind, fake)
    device = pick_device("auto", local_rank=3)
    assert device == torch.device(kind, 3)
    assert fake.chosen == [device]
    assert BACKENDS[device.type] == f"cpu:gloo,{kind}:{backend}"
    synchronize(device)
    assert fake.waits == 1
    assert peak_device_bytes(device) == 7 * 2**30


def test_auto_takes_the_cpu_where_there_is_no_device_left(none, monkeypatch):
    monkeypatch.setattr(torch, "xpu", Fake(1))
    assert pick_device("auto", local_rank=1) == torch.device("cpu")


# A backend can be named once in a process, and for good: so this runs in one of its own.
NPU = """
import sys
from types import SimpleNamespace
import torch
from solarwm.distributed.devices import BACKENDS, pick_device
from solarwm.errors.types import SolarError

class Fake:
    chosen = []
    def is_available(self): return True
    def device_count(self): return 2
    def set_device(self, device): self.chosen.append(device)

torch.utils.rename_privateuse1_backend("npu")
sys.modules["torch_npu"] = None
assert pick_device("auto", local_rank=0).type == "cpu"
try:
    pick_device("npu", local_rank=0)
except SolarError as error:
    assert (error.code, error.exit_code) == ("device.unavailable", 5)
    assert "torch_npu is not installed" in error.why
else:
    raise AssertionError("npu was taken without torch_npu")
sys.modules["torch_npu"] = SimpleNamespace()
torch.npu = Fake()
device = pick_device("npu", local_rank=1)
assert (device.type, device.index) == ("npu", 1)
assert BACKENDS["npu"] == "cpu:gloo,npu:hccl"
assert Fake.chosen == [device]
print("all held")
"""


def test_torch_npu_is_imported_only_when_npu_is_asked_for():
    done = subprocess.run([sys.executable, "-c", NPU], capture_output=True, text=True)
    assert done.stdout == "all held\n", done.stderr


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_named_device_is_never_replaced_by_another(none, monkeypatch, kind):
    monkeypatch.setattr(torch, kind, Fake(2))
    with pytest.raises(SolarError) as caught:
        pick_device(kind, local_rank=2)
    assert caught.value.code == "device.unavailable"
    assert "local rank 2 needs 3 devices, 2 are visible" in caught.value.why
