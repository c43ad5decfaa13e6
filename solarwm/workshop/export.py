"""Weights for others to load: a diffusers folder or plain safetensors, with a card that says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from solarwm import __version__
from solarwm.backbones.wan22_core.names import to_diffusers
from solarwm.checkpoints.sources import WeightSource, open_source
from solarwm.config.route import load
from solarwm.errors.types import SolarError
from solarwm.routes.spec import BackboneSpec, Profile
from solarwm.routes.table import ROOMS
from solarwm.workshop.names import without_wrappers
from solarwm.workshop.tensors import Tensors, open_tensors
from solarwm.workshop.writing import Progress, in_place_of, write

DIFFUSERS, SAFETENSORS = "diffusers", "safetensors"
TRANSFORMER = "transformer"
CARD_NAME = "README.md"


def export_folder(
    place: Path,
    target: Path,
    *,
    format: str,
    weights: str,
    dtype: torch.dtype | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda count: None,
) -> dict[str, Any]:
    """Write the weights of a checkpoint, run, package or file as a folder; gives what was written.

    `diffusers`: `transformer/` with config and published library names; `safetensors`: our own names.
    `verify` opens the result again and compares every value. Raises `weights.*`, `checkpoint.*` (exit 3):
    a family or a key without a library name, a result that differs; `checkpoint.exists` (exit 5).
    """
    source = open_source(place)
    weights = source.weights_role(weights)
    tensors = open_tensors(source.path, weights=weights)
    tensors = tensors.renamed(without_wrappers(tensors.facts))
    if format == DIFFUSERS:
        spec, profile = _sizes(source)
        config = _config(spec, profile)
        tensors = _library_names(tensors, source)
    else:
        config = None
    with in_place_of(target, overwrite=overwrite, num_bytes=tensors.num_bytes) as private:
        private.mkdir()
        folder = private / TRANSFORMER if config is not None else private / "weights"
        files = write(tensors, folder, format="sharded", dtype=dtype, progress=progress)
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        else:
            for name in files:
                (folder / name).rename(private / name)
            folder.rmdir()
            folder = private
        (private / CARD_NAME).write_text(card(source, weights, format), encoding="utf-8")
        if verify:
            _compare(tensors, folder, dtype)
            if config is not None:
                _require_library(folder, config)
    return {
        "output": str(target),
        "format": format,
        "weights": weights,
        "tensors": len(tensors.facts),
        "files": sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()),
        "verified": verify,
    }


def card(source: WeightSource, weights: str, format: str) -> str:
    """A model card made of what the source records."""
    told = {
        **source.contract,
        "weights": weights,
        "step": source.step,
        "numerics": source.numerics or "published",
        "profile": source.model.get("profile"),
        "identity": source.identity,
    }
    rows = [f"| {name.replace('_', ' ')} | {value} |" for name, value in told.items() if value]
    family = source.contract.get("family", "unknown family")
    use = (
        'Load it with `WanTransformer3DModel.from_pretrained(FOLDER, subfolder="transformer")`. The library runs '
        "it without cameras: camera attention has no parameters of its own and is not part of that class."
        if format == DIFFUSERS
        else "Load it with `solarwm infer --set checkpoint.path=FOLDER`."
    )
    return "\n".join(
        (
            f"# {family}, {source.contract.get('stage', 'weights')}",
            "",
            f"Exported by solarwm {__version__}. {use}",
            "",
            "| | |",
            "|---|---|",
            *rows,
            "",
            "The licence of the base model goes with these weights; see its own page.",
            "",
        )
    )


def _sizes(source: WeightSource) -> tuple[BackboneSpec, Profile]:
    family = source.contract.get("family") or source.model.get("family")
    profile = source.model.get("profile", "released")
    if not str(family).startswith("wan22"):
        raise SolarError(
            "checkpoint.source-mismatch",
            f"{family or 'weights of an unknown family'} have no diffusers layout here",
            where=str(source.path),
            why="only Wan transformers are mapped to library names; the source must record its family",
            fixes=["--format safetensors"],
        )
    spec: BackboneSpec = load(f"{ROOMS[str(family)]}.spec:SPEC")
    return spec, spec.profiles[profile]


def _config(spec: BackboneSpec, profile: Profile) -> dict[str, Any]:
    dims = profile.dims
    return {
        "_class_name": "WanTransformer3DModel",
        "patch_size": list(dims.patch),
        "num_attention_heads": dims.num_heads,
        "attention_head_dim": dims.head_dim,
        "in_channels": dims.in_channels,
        "out_channels": dims.out_channels,
        "text_dim": dims.text_dim,
        "freq_dim": dims.freq_dim,
        "ffn_dim": dims.ffn_dim,
        "num_layers": dims.num_layers,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "eps": 1e-6,
        "image_dim": None,
        "added_kv_proj_dim": None,
        "rope_max_seq_len": 1024,
    }


def _library_names(tensors: Tensors, source: WeightSource) -> Tensors:
    unmapped = [
        name
        for name in tensors.facts
        if to_diffusers(name) is None or name.startswith("delta_embedding.")
    ]
    if unmapped:
        raise SolarError(
            "weights.unexpected-tensors",
            f"{len(unmapped)} of {len(tensors.facts)} tensors have no place in the library's model",
            where=str(source.path),
            why=f"such as {unmapped[0]}: a flow map has an endpoint embedding the library does not know"
            if unmapped[0].startswith("delta_")
            else f"such as {unmapped[0]}",
            fixes=["--format safetensors keeps our own names"],
        )
    return tensors.renamed({str(to_diffusers(name)): name for name in tensors.facts})


def _compare(tensors: Tensors, folder: Path, dtype: torch.dtype | None) -> None:
    again = open_tensors(folder)
    if set(again.facts) != set(tensors.facts):
        raise _differs(folder, "names differ")
    for name, value in again.items():
        wanted = tensors.read(name)
        if dtype is not None and wanted.is_floating_point():
            wanted = wanted.to(dtype)
        if wanted.dtype != value.dtype or not torch.equal(wanted, value):
            raise _differs(folder, f"{name} differs")


def _require_library(folder: Path, config: dict[str, Any]) -> None:
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    with torch.device("meta"):
        model = WanTransformer3DModel(
            **{key: value for key, value in config.items() if key[0] != "_"}
        )
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: item.shape for name, item in open_tensors(folder).facts.items()}
    if wanted != found:
        odd = sorted(set(wanted.items()) ^ set(found.items()))
        raise _differs(folder, f"the library's model has other tensors, such as {odd[0][0]}")


def _differs(folder: Path, why: str) -> SolarError:
    return SolarError(
        "checkpoint.damaged",
        "what was written is not what was to be written",
        where=str(folder),
        why=why,
    )
