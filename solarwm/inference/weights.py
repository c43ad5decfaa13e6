"""Which weights a generation uses: found without torch, loaded per name, identified for
manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.checkpoints.directory import find
from solarwm.checkpoints.manifest import MANIFEST_NAME, STATE_NAME, check_sizes, read_manifest
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json, file_blake2s

if TYPE_CHECKING:
    import torch
    from torch import nn

    from solarwm.backbones.seam import Backbone
    from solarwm.config.resolve import ResolvedRun

ROLE = "student"
RELEASED_FILES = ("model.pt", "model.safetensors", "diffusion_pytorch_model.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """Where weights come from: a training checkpoint of ours, or a released file or directory."""

    path: Path
    is_checkpoint: bool
    identity: str
    """Names the content; a weights id is this with `#live` or `#ema`."""
    numerics: str | None = None
    """Numerics the checkpoint records; None where none are recorded (released weights)."""
    step: int | None = None
    contract: Mapping[str, Any] = field(default_factory=dict)
    """`family`, `profile` and camera settings it was trained with, where recorded."""

    def weights_id(self, weights: str) -> str:
        """Identity of one role of these weights."""
        return f"{self.identity}#{weights}"


def find_weights(path: Path, wanted: Sequence[str]) -> WeightSource:
    """The source meant by `checkpoint.path`; a run directory stands for its newest checkpoint.

    Raises `inference.weights-missing` or `checkpoint.*` (exit 3). Reads manifests, no tensors.
    """
    if path.is_file():
        return _released(path)
    if not path.is_dir():
        raise _missing(path, "there is no such file or directory")
    if any((path / name).is_file() for name in RELEASED_FILES) or list(path.glob("*.safetensors")):
        return _released(path)
    place = find(path)
    manifest = read_manifest(place)
    check_sizes(place, manifest)
    for weights in wanted:
        member = f"{ROLE}-{'model' if weights == 'live' else 'ema'}"
        if manifest.member(member) is None:
            held = ", ".join(entry.name for entry in manifest.members)
            raise _missing(place, f"{weights} weights are asked for; it holds {held}")
    facts = json.loads((place / STATE_NAME).read_bytes())["facts"]
    model = facts.get("config", {}).get("model", {})
    return WeightSource(
        path=place,
        is_checkpoint=True,
        identity=f"manifest:{file_blake2s(place / MANIFEST_NAME)}",
        numerics=facts.get("numerics"),
        step=manifest.step,
        contract={
            name: model[name]
            for name in (
                "family",
                "profile",
                "camera_translation_transform",
                "camera_intrinsics_mode",
            )
            if name in model
        },
    )


def check_fit(source: WeightSource, resolved: ResolvedRun) -> str:
    """The numerics to generate with; refuses weights trained for something else.

    Raises `inference.weights-mismatch` (exit 3) where family, profile or camera settings differ,
    `inference.numerics-differ` (exit 2) where the config contradicts the checkpoint.
    """
    model = resolved.config.model
    differing = [
        f"{name}: trained with {trained!r}, the config says {getattr(model, name)!r}"
        for name, trained in source.contract.items()
        if trained != getattr(model, name)
    ]
    if differing:
        raise SolarError(
            "inference.weights-mismatch",
            "the weights were trained for another model or camera",
            where=str(source.path),
            why="; ".join(differing),
            fixes=[f"--set model.{name}={value}" for name, value in source.contract.items()][:3],
        )
    recorded = source.numerics or "published"
    if model.numerics not in ("auto", recorded):
        raise SolarError(
            "inference.numerics-differ",
            f"the weights need {recorded} numerics, the config asks for {model.numerics}",
            where="model.numerics",
            why=f"{source.path} was trained with {recorded} numerics",
            fixes=["--set model.numerics=auto"],
        )
    return recorded


def load_modules(
    source: WeightSource,
    wanted: Sequence[str],
    *,
    backbone: Backbone,
    device: torch.device,
) -> dict[str, nn.Module]:
    """One module in eval mode on `device` per weights name. Collective over all ranks for a
    training checkpoint. Raises `checkpoint.*` or `weights.*` (exit 3)."""
    modules: dict[str, nn.Module] = {}
    for weights in wanted:
        module = backbone.build(device=device, seed=0)
        if source.is_checkpoint:
            _load_checkpoint(source.path, module, weights)
        else:
            backbone.load(module, source.path, weights=weights)
        modules[weights] = module.eval().requires_grad_(False)
    return modules


def _load_checkpoint(path: Path, module: nn.Module, weights: str) -> None:
    from solarwm.checkpoints.optimizer import named_parameters, named_tensors
    from solarwm.checkpoints.state import RoleState
    from solarwm.checkpoints.store import CheckpointStore

    state = (
        RoleState(model=named_tensors(module))
        if weights == "live"
        else RoleState(ema={name: p.detach() for name, p in named_parameters(module).items()})
    )
    CheckpointStore(path.parent).load_into(path, {ROLE: state}, cast_dtypes=True)


def _released(path: Path) -> WeightSource:
    files = [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file())
    inventory = [[item.name, item.stat().st_size] for item in files]
    return WeightSource(
        path=path,
        is_checkpoint=False,
        identity=f"files:{blake2s_hex(canonical_json(inventory))}",
    )


def _missing(path: Path, why: str) -> SolarError:
    return SolarError(
        "inference.weights-missing",
        "the weights to generate with are not there",
        where=str(path),
        why=why,
        fixes=["--set checkpoint.path=/absolute/path/of/a/training/run"],
    )
