"""Devices by name, in this one place: which one to use, how its ranks talk, how much memory it
holds."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from contextlib import suppress

import torch

from solarwm.errors.types import SolarError

BACKENDS = {
    "cpu": "gloo",
    "mps": "gloo",
    "cuda": "cpu:gloo,cuda:nccl",
    "npu": "cpu:gloo,npu:hccl",
    "xpu": "cpu:gloo,xpu:xccl",
}
"""Process-group backend per device type; every one can also carry CPU tensors."""


def pick_device(name: str, *, local_rank: int) -> torch.device:
    """The device called `name` (`auto`: CUDA, then XPU, then CPU) for this local rank.

    torch_npu is imported only for `npu`. Raises `device.unavailable` (exit 5).
    """
    if name == "auto":
        name = next((kind for kind in ("cuda", "xpu") if _count(kind) > local_rank), "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if name == "npu":
        try:
            importlib.import_module("torch_npu")
        except ImportError as cause:
            raise _unavailable(name, "the package torch_npu is not installed") from cause
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise _unavailable(name, "this build of torch or this machine has no MPS")
        return torch.device("mps")
    count = _count(name)
    if local_rank >= count:
        raise _unavailable(
            name, f"local rank {local_rank} needs {local_rank + 1} devices, {count} are visible"
        )
    device = torch.device(name, local_rank)
    _module(name).set_device(device)
    return device


def synchronize(device: torch.device) -> None:
    """Wait for queued work on `device`; nothing to do on the CPU."""
    if device.type != "cpu":
        _module(device.type).synchronize()


def peak_device_bytes(device: torch.device) -> int:
    """Highest allocation on `device` so far in bytes; 0 where the device keeps no such count."""
    with suppress(AttributeError, RuntimeError):
        if device.type != "cpu":
            return int(_module(device.type).max_memory_allocated())
    return 0


def resident_bytes() -> int:
    """Memory this process holds in RAM, in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def _module(name: str):
    return getattr(torch, name)


def _count(name: str) -> int:
    module = getattr(torch, name, None)
    try:
        return int(module.device_count()) if module is not None and module.is_available() else 0
    except (AttributeError, RuntimeError):
        return 0


def _unavailable(name: str, why: str) -> SolarError:
    return SolarError(
        "device.unavailable",
        f"the device `{name}` cannot be used here",
        where="runtime.device",
        why=why,
        fixes=["solarwm environment probe", "--set runtime.device=cpu"],
    )


def require_compiler(device_type: str) -> None:
    """Refuse (`environment.no-compiler`, exit 5) to compile where nothing can: a CPU needs a C++
    compiler, an accelerator Triton. Compiles nothing."""
    if device_type == "cpu":
        named = os.environ.get("CXX", "")
        if any(shutil.which(name) for name in (named, "g++", "clang++", "c++") if name):
            return
        missing = "a C++ compiler (g++ or clang++)"
    else:
        if device_type in ("cuda", "xpu") and importlib.util.find_spec("triton") is not None:
            return
        missing = "Triton"
    raise SolarError(
        "environment.no-compiler",
        f"blocks cannot be compiled for {device_type} here",
        where="runtime.compile_blocks",
        why=f"{missing} was not found",
        fixes=["--set runtime.compile_blocks=false", f"install {missing}"],
    )
