"""Start weights that do not fit are refused while every model of the run is still on meta."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.checkpoints.sources import open_source
from solarwm.distributed.collectives import Collectives
from solarwm.errors.types import FaultList, SolarError
from solarwm.training import assembly
from solarwm.training.initial_weights import StartWeights


def test_a_bad_teacher_is_refused_before_any_role_is_allocated(tmp_path, monkeypatch) -> None:
    model = SimpleNamespace(camera_translation_transform="linear")
    backbone = create(SPEC.profiles["tiny"], model)
    start = {}
    for role, profile in (("student", "tiny"), ("teacher", "small"), ("critic", "tiny")):
        module = create(SPEC.profiles[profile], model).build(device="cpu", seed=0)
        place = tmp_path / f"{role}.pt"
        torch.save({"generator": module.state_dict(), "global_step": 1}, place)
        start[role] = StartWeights(source=open_source(place), weights="live", endpoint="exact")
    built = []
    build = backbone.build

    def watched(*, device, **rest):
        built.append(str(device))
        return build(device=device, **rest)

    monkeypatch.setattr(backbone, "build", watched)
    monkeypatch.setattr(assembly, "open_backbone", lambda resolved: backbone)
    monkeypatch.setattr(assembly, "start_weights", lambda resolved: start)
    monkeypatch.setattr(assembly, "endpoint_gate", lambda resolved: None)
    route = SimpleNamespace(
        roles=("student", "teacher", "critic"),
        causal_mode="self_gradient_forcing",
        objective="flow_matching",
    )
    resolved = SimpleNamespace(
        route=route, config=SimpleNamespace(model=SimpleNamespace(profile="tiny"))
    )
    group = SimpleNamespace(
        sequence=backbone.sequence,
        device=torch.device("cpu"),
        world_rank=0,
        collectives=Collectives(world_rank=0, world_size=1),
    )
    with pytest.raises((SolarError, FaultList)) as caught:
        assembly.build_stage(resolved, group)
    assert caught.value.exit_code == 3
    assert "teacher.pt" in str(caught.value)
    assert set(built) == {"meta"}
