from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.checkpoints.optimizer import named_parameters, named_tensors
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError
from solarwm.inference.weights import check_fit, find_weights, load_modules

MODEL = {
    "family": "wan22_ti2v_5b",
    "profile": "tiny",
    "camera_translation_transform": "linear",
    "camera_intrinsics_mode": "wan_fixed",
}


@pytest.fixture(scope="module")
def backbone():
    return create(SPEC.profiles["tiny"], SimpleNamespace(camera_translation_transform="linear"))


@pytest.fixture(scope="module")
def module(backbone):
    return backbone.build(device="cpu", seed=11)


def _save(root, step, module, *, ema=True):
    average = {name: p.detach() + 1.0 for name, p in named_parameters(module).items()}
    facts = Facts(
        occurrences=0,
        route="r",
        resolved_digest="0" * 64,
        numerics="corrected",
        topology={},
        versions={},
        contract={},
        config={"model": MODEL},
    )
    role = RoleState(model=named_tensors(module), ema=average if ema else None)
    return CheckpointStore(root).save(step, CheckpointState(roles={"student": role}, facts=facts))


def _resolved(**changes):
    model = SimpleNamespace(**(MODEL | {"numerics": "auto"} | changes))
    route = SimpleNamespace(family=model.family, stage="stage0p5", objective="flow_matching")
    return SimpleNamespace(config=SimpleNamespace(model=model), route=route)


def test_a_run_directory_stands_for_its_newest_checkpoint(tmp_path, module):
    _save(tmp_path, 5, module)
    newest = _save(tmp_path, 10, module)
    source = find_weights(tmp_path, ("ema",))
    assert source.path == newest
    assert source.step == 10
    assert source.weights_id("ema").startswith("manifest:")
    assert source.weights_id("ema").endswith("#ema")
    assert find_weights(newest, ("live",)).identity == source.identity


def test_live_and_average_weights_are_loaded_bit_for_bit(tmp_path, backbone, module):
    path = _save(tmp_path, 3, module)
    source = find_weights(path, ("live", "ema"))
    loaded = load_modules(source, ("live", "ema"), backbone=backbone, device=torch.device("cpu"))
    for name, parameter in module.named_parameters():
        assert torch.equal(loaded["live"].get_parameter(name), parameter)
        assert torch.equal(loaded["ema"].get_parameter(name), parameter + 1.0)
    assert not loaded["live"].training
    assert not any(parameter.requires_grad for parameter in loaded["live"].parameters())


def test_missing_weights_are_told_with_what_is_there(tmp_path, module):
    path = _save(tmp_path, 3, module, ema=False)
    with pytest.raises(SolarError) as caught:
        find_weights(path, ("ema",))
    assert caught.value.code == "inference.weights-missing"
    assert caught.value.exit_code == 3
    assert "live weights" in caught.value.why


def test_a_path_that_is_not_there_and_a_run_without_checkpoints_are_exit_3(tmp_path):
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(SolarError) as caught:
            find_weights(place, ("live",))
        assert caught.value.exit_code == 3


def test_a_released_file_records_no_numerics_and_means_published(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"generator": {"a": torch.zeros(1)}}, path)
    source = find_weights(tmp_path, ("live",))
    assert source.weights == ("live",)
    assert source.kind == "file"
    assert check_fit(source, _resolved()) == "published"


def test_the_recorded_numerics_bind(tmp_path, module):
    source = find_weights(_save(tmp_path, 3, module), ("live",))
    assert check_fit(source, _resolved()) == "corrected"
    with pytest.raises(SolarError) as caught:
        check_fit(source, _resolved(numerics="published"))
    assert caught.value.exit_code == 2


def test_weights_of_another_camera_are_refused_with_the_difference(tmp_path, module):
    source = find_weights(_save(tmp_path, 3, module), ("live",))
    with pytest.raises(SolarError) as caught:
        check_fit(source, _resolved(camera_translation_transform="logd4"))
    assert caught.value.exit_code == 3
    assert "linear" in caught.value.why
    assert "logd4" in caught.value.why
