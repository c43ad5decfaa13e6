"""Which weights a generation uses: found without torch, loaded per name, identified for
manifests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.checkpoints.sources import TRAINING, WeightSource, load_source, open_source
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from solarwm.backbones.seam import Backbone
    from solarwm.config.resolve import ResolvedRun

MODEL_FIELDS = ("family", "profile", "camera_translation_transform", "camera_intrinsics_mode")
"""Settings of the `model` section that weights are bound to."""


def find_weights(path: Path, wanted: Sequence[str]) -> WeightSource:
    """The source meant by `checkpoint.path`; a run directory stands for its newest checkpoint.

    Raises `inference.weights-missing` or `checkpoint.*` (exit 3). Reads no tensors.
    """
    if not path.exists():
        raise _missing(path, "there is no such file or directory")
    source = open_source(path)
    for weights in wanted:
        if source.weights and source.weights_role(weights) not in source.weights:
            held = ", ".join(source.weights)
            raise _missing(source.path, f"{weights} weights are asked for; it holds {held} weights")
    return source


def check_fit(source: WeightSource, resolved: ResolvedRun) -> str:
    """The numerics to generate with; refuses weights trained for something else.

    Raises `inference.weights-mismatch` (exit 3) where family, profile or camera settings differ,
    `inference.numerics-differ` (exit 2) where the config contradicts the checkpoint.
    """
    model = resolved.config.model
    bound = {name: source.model[name] for name in MODEL_FIELDS if name in source.model}
    differing = [
        f"{name}: trained with {trained!r}, the config says {getattr(model, name)!r}"
        for name, trained in bound.items()
        if trained != getattr(model, name)
    ]
    route = resolved.route
    asked = {"family": route.family, "stage": route.stage, "objective": route.objective}
    differing += [
        f"{name}: trained as {source.contract[name]!r}, the config says {value!r}"
        for name, value in asked.items()
        if name in source.contract and name not in bound and source.contract[name] != value
    ]
    if differing:
        raise SolarError(
            "inference.weights-mismatch",
            "the weights were trained for another model, stage or camera",
            where=str(source.path),
            why="; ".join(differing),
            fixes=[f"--set model.{name}={value}" for name, value in bound.items()][:3],
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
    endpoint_gate: float | None = None,
    sharding: Any = None,
) -> dict[str, nn.Module]:
    """One module in eval mode on `device` per weights name, in the parameter dtype that a training
    run of this `train.fsdp` section computes in; None keeps it.

    Collective over all ranks for a training checkpoint. Raises `checkpoint.*` or `weights.*`
    (exit 3).
    """
    from solarwm.distributed.sharding import cast_as_sharded

    modules: dict[str, nn.Module] = {}
    for weights in wanted:
        module = backbone.build(
            device=device if source.kind == TRAINING else "meta",
            seed=0,
            endpoint_gate=endpoint_gate,
        )
        load_source(source, backbone, module, weights=weights)
        if sharding is not None:
            cast_as_sharded(module, sharding)
        modules[weights] = module.to(device).eval().requires_grad_(False)
    return modules


def _missing(path: Path, why: str) -> SolarError:
    return SolarError(
        "inference.weights-missing",
        "the weights to generate with are not there",
        where=str(path),
        why=why,
        fixes=["--set checkpoint.path=/absolute/path/of/a/training/run"],
    )
