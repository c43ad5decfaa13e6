"""The tiny twin of a published config: the same route and rules at a size that runs on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from solarwm.config import aliases, loading, routing
from solarwm.config.binding import key_of, location_of, mark_of, nested
from solarwm.config.marks import Architecture, Derived
from solarwm.config.plain import is_list, is_mapping
from solarwm.config.route import load
from solarwm.config.yaml_writer import written
from solarwm.errors.types import FaultList

# Choices of the published recipe that only make sense on its hardware; a twin takes the defaults.
_MACHINE = frozenset(
    {
        "distributed",
        "train.ema.device",
        "train.ema.start_step",
        "train.ema.warmup_steps",
        "train.fsdp",
        "train.global_batch_size",
        "train.grad_accum",
        "train.micro_batch_size",
        "train.optimizer.warmup_steps",
        "train.warmup_steps",
        "data.gcs_prefetch_shards",
        "data.num_workers",
        "data.prefetch_factor",
        "data.shuffle_buffer",
        "runtime.compile_flex",
        "model.attention_backend",
    }
)
_STEPS = 4


def twin(path: Path, *, world_size: int = 1, sequence_parallel_size: int = 1) -> str:
    """The YAML text of the tiny twin of the config at `path`.

    Sizes and derived fields are left out, so that the tiny profile fills them in; the batch is one sample a
    rank, the run four steps long. Raises what reading the config raises.
    """
    document = loading.parse(path, loading.read_bytes(path))
    row = routing.choose(document)
    if row is None or document.faults:
        raise FaultList(document.faults)
    model: type[BaseModel] = load(row.config_model)
    aliases.rename(document, model)
    values = _shrink(model, document.values, "")
    values["name"] = f"{document.values['name']}-tiny"
    values["model"]["profile"] = "tiny"
    runtime = values["runtime"]
    runtime["output_dir"] = f"outputs/{values['name']}"
    runtime["device"] = "cpu"
    if values["action"] == "preencode":
        return written(values)
    ranks = world_size // sequence_parallel_size
    values["distributed"] = {
        "world_size": world_size,
        "sequence_parallel_size": sequence_parallel_size,
    }
    train, training = values["train"], values["action"] == "train"
    if training:
        train |= {
            "micro_batch_size": 1,
            "grad_accum": 1,
            "global_batch_size": ranks,
            "max_steps": _STEPS,
        }
        values["data"]["order"] = "indexed"
    _cadence(values, ranks)
    return written(values)


def _cadence(values: dict[str, Any], ranks: int) -> None:
    for section in ("validation", "inference"):
        inner = values.get(section)
        if is_mapping(inner) and "sample_count" in inner:
            inner["sample_count"] = ranks
    for section, key, every in (
        ("runtime", "save_every", 2),
        ("runtime", "validate_every", _STEPS),
        ("checkpoint", "save_every_steps", 2),
        ("validation", "validate_every_steps", _STEPS),
    ):
        inner = values.get(section)
        if is_mapping(inner) and key in inner:
            inner[key] = every


def _shrink(model: type[BaseModel], values: dict[str, Any], path: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    fields = {key_of(name, info): info for name, info in model.model_fields.items()}
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        info = fields.get(key)
        if info is None:
            kept[key] = value
            continue
        mark = mark_of(info)
        if here in _MACHINE or isinstance(mark, Architecture | Derived):
            continue
        if mark is not None and mark.by is not None and not info.is_required():
            continue
        weights = path == "model" or path.startswith("model.")
        place = location_of(info)
        if weights and place is not None and place.released_only and not info.is_required():
            continue
        inner, many = nested(info.annotation)
        if here == "model.assets":
            continue
        if inner is not None and is_mapping(value):
            value = _shrink(inner, value, here)
        elif inner is not None and many and is_list(value):
            value = [_shrink(inner, item, here) if is_mapping(item) else item for item in value]
        kept[key] = value
    return kept
