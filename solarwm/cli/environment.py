"""`solarwm environment`: what this machine offers. Nothing that is absent is imported."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import typer

from solarwm.cli.output import JsonOption, columns, emit

group = typer.Typer(
    help="What this machine offers: Python, devices, optional packages.", add_completion=False
)

OPTIONAL = (
    ("torch", "torch", "training and generation", "run"),
    ("diffusers", "diffusers", "video autoencoders and library transformers", "run"),
    ("transformers", "transformers", "text encoders", "run"),
    ("peft", "peft", "adapters", "run"),
    ("ftfy", "ftfy", "prompts as Wan was trained with", "run"),
    ("safetensors", "safetensors", "weights and latent caches", "run"),
    ("av", "av", "reading and writing video", "data"),
    ("pillow", "PIL", "images", "data"),
    ("fsspec", "fsspec", "object stores", "data"),
    ("isal", "isal", "faster gzip", "fast"),
    ("gcsfs", "gcsfs", "gs:// stores", "gcs"),
    ("s3fs", "s3fs", "s3:// stores", "s3"),
    ("tensorboard", "tensorboard", "TensorBoard tracker", "tensorboard"),
    ("wandb", "wandb", "Weights & Biases tracker", "wandb"),
    ("trackio", "trackio", "Trackio tracker", "trackio"),
    ("starlette", "starlette", "solarwm play", "play"),
    ("uvicorn", "uvicorn", "solarwm play", "play"),
    ("websockets", "websockets", "solarwm play", "play"),
    ("torch-npu", "torch_npu", "Ascend devices", "npu"),
    ("flash-attn", "flash_attn", "variable-length attention", ""),
)
"""Distribution, import name, what it is for, the extra that brings it."""
_PUBLISHED = ("diffusers", "transformers", "flash-attn", "peft", "safetensors")


@group.callback()
def _group() -> None:
    """What this machine offers: Python, devices, optional packages."""


@group.command(epilog="Example: solarwm environment probe --json")
def probe(json: JsonOption = False) -> None:
    """Python, torch, devices, and which optional packages are present or absent, with the reason."""
    emit(survey(), json=json, text=_lines)


def survey() -> dict[str, Any]:
    """The probe as JSON values: the published keys, plus devices and optional packages."""
    optional = {item[0]: _package(*item) for item in OPTIONAL}
    torch, why = (
        _torch() if optional["torch"]["present"] else (None, str(optional["torch"]["reason"]))
    )
    result: dict[str, Any] = {
        "python": sys.executable,
        "python_version": platform.python_version(),
        "platform": platform.platform(),
        "packages": {
            name: optional[name]["version"] for name in _PUBLISHED if optional[name]["present"]
        },
        "optional": optional,
        "devices": _devices(torch, why),
    }
    if torch is not None:
        result |= {
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "cuda_available": bool(torch.cuda.is_available()),
            "nccl": _nccl(torch),
        }
    return result


def _package(name: str, module: str, purpose: str, extra: str) -> dict[str, Any]:
    try:
        present = find_spec(module) is not None
    except (ImportError, ValueError):
        present = False
    found: str | None = None
    if present:
        try:
            found = version(name)
        except PackageNotFoundError:
            found = None
    hint = f"pip install 'solarwm[{extra}]'" if extra else f"pip install {name}"
    return {
        "present": present,
        "version": found,
        "purpose": purpose,
        "reason": "" if present else f"not installed: {hint}",
    }


def _torch() -> tuple[Any, str]:
    try:
        import torch
    except Exception as error:
        return None, f"torch is installed but cannot be imported: {type(error).__name__}: {error}"
    return torch, ""


def _nccl(torch: Any) -> list[int] | None:
    if not torch.cuda.is_available():
        return None
    try:
        return list(torch.cuda.nccl.version())
    except Exception:
        return None


def _devices(torch: Any, why: str) -> dict[str, Any]:
    devices: dict[str, Any] = {
        "cpu": {"available": True, "count": len(os.sched_getaffinity(0)), "reason": ""}
        if hasattr(os, "sched_getaffinity")
        else {"available": True, "count": os.cpu_count() or 1, "reason": ""}
    }
    for name in ("cuda", "npu", "xpu", "mps"):
        devices[name] = _device(torch, name) if torch is not None else _absent(why)
    return devices


def _device(torch: Any, name: str) -> dict[str, Any]:
    if name == "npu":
        if find_spec("torch_npu") is None:
            return _absent("torch_npu is not installed")
        try:
            import torch_npu  # type: ignore[import-not-found]  # noqa: F401
        except Exception as error:
            return _absent(f"torch_npu cannot be imported: {type(error).__name__}")
    module = torch.backends.mps if name == "mps" else getattr(torch, name, None)
    if module is None or not module.is_available():
        built = name == "cuda" and torch.version.cuda is None
        return _absent(
            "this torch is built without CUDA" if built else f"no {name} device is visible"
        )
    count = 1 if name == "mps" else int(module.device_count())
    return {"available": True, "count": count, "reason": ""}


def _absent(reason: str) -> dict[str, Any]:
    return {"available": False, "count": 0, "reason": reason}


def _lines(value: dict[str, Any]) -> list[str]:
    lines = [
        f"Python {value['python_version']}  {value['python']}",
        f"torch  {value.get('torch', 'absent')}",
        "",
    ]
    devices = [
        (name, str(item["count"]) if item["available"] else "absent", item["reason"])
        for name, item in value["devices"].items()
    ]
    lines += columns(devices, header=("device", "count", "reason"))
    packages = [
        (
            name,
            item["version"] or ("present" if item["present"] else "absent"),
            item["reason"] or item["purpose"],
        )
        for name, item in value["optional"].items()
    ]
    return [*lines, "", *columns(packages, header=("package", "version", ""))]
