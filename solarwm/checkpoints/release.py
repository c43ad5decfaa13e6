"""A training checkpoint as a published package: the weights alone, in the published layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from solarwm.checkpoints.directory import find
from solarwm.checkpoints.manifest import Manifest, check_sizes, read_manifest
from solarwm.checkpoints.packages import (
    CRITIC_NAME,
    INFERENCE_SCHEMA,
    MODEL_NAME,
    PackageFile,
    PackageManifest,
    package_files,
    release_note,
)
from solarwm.checkpoints.shard_reader import read_member, read_metadata
from solarwm.checkpoints.sources import contract_of
from solarwm.checkpoints.store import read_state
from solarwm.errors.types import SolarError
from solarwm.storage.durable import make_directories, staged_directory, storage_errors, write_new
from solarwm.storage.space import require_free

WEIGHTS_SCHEMA = "solarwm.wan22-weights.v1"
_LAYOUT = "solarwm_wan_stage2_transaction_v1"
CRITIC_MEMBER = "critic-model"
_ATTENTION = (
    "local_attn_size",
    "max_prior_clean_chunks",
    "sink_size",
    "rope_train_frames",
    "use_echorope",
)


def export_released(place: Path, target: Path, *, default_weights: str | None = None) -> Path:
    """Write the weights of a training checkpoint (a run: its newest) as a package at `target`.

    `model.pt` holds `generator` and, where averaged, `generator_ema`, fp32 under published names,
    with step and config; `critic.pt` holds `critic`, where one is trained. Stage2 names carry the
    `model.` prefix. Default weights of the release
    note: EMA where there is one. Holds both sets of weights in memory. Raises `checkpoint.*` (exit
    3), `disk.*` (exit 5); an existing target is `checkpoint.exists` (exit 5).
    """
    checkpoint = find(place)
    manifest = read_manifest(checkpoint)
    check_sizes(checkpoint, manifest)
    record = read_state(checkpoint, manifest)
    config = record.facts.config
    contract = contract_of(config)
    _require_wan(checkpoint, contract)
    held = {"live": manifest.member("student-model"), "ema": manifest.member("student-ema")}
    weights = tuple(name for name, member in held.items() if member)
    default = default_weights or ("ema" if "ema" in weights else "live")
    if default not in weights:
        raise SolarError(
            "checkpoint.ema-missing",
            f"the checkpoint has no {default} weights to load by default",
            where=str(checkpoint),
            why=f"Expected {default}, found {', '.join(weights)}.",
        )
    if target.exists():
        raise SolarError("checkpoint.exists", "something stands there already", where=str(target))
    make_directories(target.parent)
    members = [_member(name) for name in weights]
    if manifest.member(CRITIC_MEMBER):
        members.append(CRITIC_MEMBER)
    size = sum(file.size for name in members for file in manifest.files_under(name))
    require_free(target.parent, size)
    model = dict(cast("dict[str, Any]", config.get("model", {}))) | {
        "numerics": record.facts.numerics
    }
    prefix = "model." if contract.get("stage") == "stage2" else ""
    document: dict[str, Any] = {
        "global_step": manifest.step,
        "config": {**config, "model": model},
        "generator": _tensors(checkpoint, manifest, _member("live"), prefix),
    }
    if "ema" in weights:
        document["generator_ema"] = _tensors(checkpoint, manifest, _member("ema"), prefix)
        updates = record.facts.trainer.get("ema_updates", manifest.step)
        document["ema_num_updates"] = int(updates)
    with staged_directory(target) as private:
        with storage_errors(target):
            torch.save(document, private / MODEL_NAME)
            if CRITIC_MEMBER in members:
                document.clear()
                critic = _tensors(checkpoint, manifest, CRITIC_MEMBER, prefix)
                torch.save({"critic": critic, "global_step": manifest.step}, private / CRITIC_NAME)
        package = _manifest(manifest, contract, config, record.facts.numerics, weights, private)
        note = release_note(format=_LAYOUT, default_weights=default, weights=weights)
        for name, data in package_files(package, note).items():
            write_new(private / name, data)
    return target


def _manifest(
    manifest: Manifest,
    contract: dict[str, str],
    config: dict[str, Any],
    numerics: str,
    weights: tuple[str, ...],
    private: Path,
) -> PackageManifest:
    distilled = contract.get("stage") == "stage2"
    model = cast("dict[str, Any]", config.get("model", {}))
    train = cast("dict[str, Any]", config.get("train", {}))
    files = [
        PackageFile(path=name, size=(private / name).stat().st_size)
        for name in (CRITIC_NAME, MODEL_NAME)
        if (private / name).exists()
    ]
    extras: dict[str, Any] = {
        "attention": {name: model[name] for name in _ATTENTION if name in model}
    }
    if "denoising_step_list" in train:
        extras["denoising_step_list"] = train["denoising_step_list"]
    if distilled:
        contract = contract | {"objective_variant": "sgf_v1"}
    return PackageManifest(
        step=manifest.step,
        contract={
            **contract,
            "parameterization": "full-parameter-live-ema",
            "sp_size": 1,
            "data_generation": "inference-portable:v1",
            "extras": extras,
        },
        required_components=[file.path for file in files],
        files=files,
        metadata={
            "schema": INFERENCE_SCHEMA if distilled else WEIGHTS_SCHEMA,
            "available_weights": list(weights),
            "ema_present": "ema" in weights,
            "numerics": numerics,
            "model": {
                name: model[name]
                for name in (
                    "family",
                    "profile",
                    "camera_translation_transform",
                    "camera_intrinsics_mode",
                )
                if name in model
            },
        },
    )


def _member(weights: str) -> str:
    return "student-model" if weights == "live" else "student-ema"


def _tensors(checkpoint: Path, manifest: Manifest, name: str, prefix: str) -> dict[str, Tensor]:
    member = manifest.member(name)
    assert member is not None
    tensors = {
        entry.name: torch.empty(entry.shape, dtype=getattr(torch, entry.dtype))
        for entry in member.tensors
    }
    read_member(checkpoint, name, read_metadata(checkpoint, name, manifest), tensors)
    return {f"{prefix}{key}": value.float() for key, value in tensors.items()}


def _require_wan(checkpoint: Path, contract: dict[str, str]) -> None:
    family = contract.get("family", "")
    if not family.startswith("wan22"):
        raise SolarError(
            "checkpoint.source-mismatch",
            "only Wan checkpoints have a released layout here",
            where=str(checkpoint),
            why=f"Expected a wan22 family, found {family or 'nothing'!r}.",
        )
