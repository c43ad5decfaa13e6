"""Published packages: written from a training checkpoint, read back, and refused when they do not fit."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.checkpoints.manifest import read_manifest
from solarwm.checkpoints.optimizer import named_parameters, named_tensors
from solarwm.checkpoints.packages import NOTE_NAME, is_package, read_package
from solarwm.checkpoints.release import export_released
from solarwm.checkpoints.sources import load_source, open_source, require_source
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import FaultList, SolarError

MODEL = {
    "family": "wan22_ti2v_5b",
    "profile": "tiny",
    "camera_translation_transform": "linear",
    "camera_intrinsics_mode": "wan_fixed",
    "numerics": "auto",
}
ANYFLOW = {
    "stage": "stage1",
    "causal_mode": "teacher_forcing",
    "objective": "anyflow_forward_map",
    "objective_variant": "v1_5",
}
FM = {"stage": "stage0p5", "causal_mode": "bidirectional", "objective": "flow_matching"}
SGF = {
    "stage": "stage2",
    "causal_mode": "self_gradient_forcing",
    "objective": "flow_matching",
    "denoising_step_list": [1000, 750, 500, 250],
}


@pytest.fixture(scope="module")
def backbone():
    return create(SPEC.profiles["tiny"], SimpleNamespace(camera_translation_transform="linear"))


@pytest.fixture(scope="module")
def plain(backbone):
    return backbone.build(device="cpu", seed=11)


@pytest.fixture(scope="module")
def flow_map(backbone):
    return backbone.build(device="cpu", seed=11, endpoint_gate=0.25)


def saved(root, module, train, *, ema=True, model=MODEL, critic=None):
    average = {name: p.detach() + 1.0 for name, p in named_parameters(module).items()}
    facts = Facts(
        occurrences=8,
        route="r",
        resolved_digest="0" * 64,
        numerics="corrected",
        topology={},
        versions={},
        contract={},
        config={"model": model, "train": train},
        trainer={"ema_updates": 7},
    )
    role = RoleState(model=named_tensors(module), ema=average if ema else None)
    roles = {"student": role}
    if critic is not None:
        roles["critic"] = RoleState(model=named_tensors(critic))
    return CheckpointStore(root).save(7, CheckpointState(roles=roles, facts=facts))


def equal(module, state, offset=0.0):
    own = dict(module.named_parameters())
    assert set(own) == set(state)
    return all(torch.equal(own[name], value + offset) for name, value in state.items())


@pytest.mark.parametrize("train", [FM, SGF], ids=["stage0p5", "stage2"])
def test_a_checkpoint_goes_out_as_a_package_and_comes_back(tmp_path, backbone, plain, train):
    checkpoint = saved(tmp_path / "run", plain, train)
    package = export_released(tmp_path / "run", tmp_path / "package")
    assert sorted(item.name for item in package.iterdir()) == [
        "COMPLETE.json",
        "checkpoint-manifest.json",
        "model.pt",
        "release-manifest.json",
    ]
    document = torch.load(package / "model.pt", weights_only=True)
    assert document["global_step"] == 7
    assert document["ema_num_updates"] == 7
    assert document["config"]["model"]["family"] == "wan22_ti2v_5b"
    prefixed = all(name.startswith("model.") for name in document["generator"])
    assert prefixed == (train is SGF)
    assert {value.dtype for value in document["generator_ema"].values()} == {torch.float32}
    source = open_source(package)
    assert (source.kind, source.step, source.numerics) == ("package", 7, "corrected")
    assert (source.weights, source.default_weights) == (("live", "ema"), "ema")
    assert source.contract["stage"] == train["stage"]
    state = dict(plain.named_parameters())
    for weights, offset in (("live", 0.0), ("ema", 1.0)):
        module = backbone.build(device="meta", seed=0)
        report = load_source(source, backbone, module, weights=weights)
        assert (report.loaded, report.missing, report.unexpected) == (report.expected, (), ())
        assert equal(module, state, offset)
        again = backbone.build(device="cpu", seed=0)
        load_source(open_source(checkpoint), backbone, again, weights=weights)
        assert equal(again, state, offset)


def test_the_manifest_of_a_stage2_package_says_what_published_ones_say(tmp_path, plain):
    saved(tmp_path / "run", plain, SGF, model=MODEL | {"local_attn_size": 18, "sink_size": 0})
    package = export_released(tmp_path / "run", tmp_path / "package", default_weights="live")
    manifest = json.loads((package / "checkpoint-manifest.json").read_bytes())
    assert manifest["schema"] == "solarwm.checkpoint.v2"
    assert manifest["required_components"] == ["model.pt"]
    assert manifest["metadata"]["schema"] == "solarwm.wan22-stage2-inference.v1"
    assert manifest["metadata"]["available_weights"] == ["live", "ema"]
    contract = manifest["contract"]
    assert contract["objective_variant"] == "sgf_v1"
    assert contract["parameterization"] == "full-parameter-live-ema"
    assert contract["data_generation"] == "inference-portable:v1"
    assert contract["extras"]["attention"] == {"local_attn_size": 18, "sink_size": 0}
    assert contract["extras"]["denoising_step_list"] == [1000, 750, 500, 250]
    note = json.loads((package / NOTE_NAME).read_bytes())
    assert note["schema"] == "solarwm.public-weight-manifest.v1"
    assert note["load"]["default_weights"] == "live"
    assert note["identity"]["model"]["weight_role"] == "live+ema"


def test_a_bare_model_file_tells_its_training_from_the_config_inside(tmp_path, backbone, plain):
    saved(tmp_path / "run", plain, FM)
    package = export_released(tmp_path / "run", tmp_path / "package")
    bare = tmp_path / "model.pt"
    bare.write_bytes((package / "model.pt").read_bytes())
    source = open_source(bare)
    assert (source.kind, source.step, source.weights) == ("file", 7, ("live", "ema"))
    assert source.contract == read_package(package).contract
    module = backbone.build(device="meta", seed=0)
    load_source(source, backbone, module, weights="ema")
    assert equal(module, dict(plain.named_parameters()), 1.0)


@pytest.mark.parametrize("kind", ["training", "package"])
def test_endpoint_embeddings_are_filled_and_dropped(tmp_path, backbone, plain, flow_map, kind):
    def source(module, train, name):
        saved(tmp_path / name, module, train)
        if kind == "training":
            return open_source(tmp_path / name)
        return open_source(export_released(tmp_path / name, tmp_path / f"{name}-package"))

    base, mapped = source(plain, FM, "base"), source(flow_map, ANYFLOW, "mapped")
    module = backbone.build(device="cpu", seed=0, endpoint_gate=0.25)
    report = load_source(base, backbone, module, weights="ema", endpoint="fill")
    assert len(report.filled) == 4
    state = dict(plain.named_parameters())
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, state[name.replace("delta_", "time_")] + 1.0)
    student = backbone.build(device="cpu", seed=0)
    report = load_source(mapped, backbone, student, weights="ema", endpoint="drop")
    assert len(report.dropped) == 4
    assert report.loaded == report.expected
    full = dict(flow_map.named_parameters())
    assert all(torch.equal(p, full[name] + 1.0) for name, p in student.named_parameters())
    for strict, target in ((base, module), (mapped, student)):
        with pytest.raises((SolarError, FaultList)) as caught:
            load_source(strict, backbone, target, weights="ema")
        assert caught.value.exit_code == 3


def test_a_source_of_another_training_is_refused_with_both_sides(tmp_path, plain):
    saved(tmp_path / "run", plain, FM, ema=False)
    source = open_source(tmp_path / "run")
    require_source(
        source,
        expected={"stage": "stage0p5", "objective": "flow_matching", "causal_mode": None},
        weights="live",
        step=7,
    )
    with pytest.raises(SolarError) as caught:
        require_source(
            source,
            expected={
                "stage": "stage1",
                "objective": "anyflow_forward_map",
                "camera_translation_transform": "logd4",
            },
            weights="live",
            step=30000,
            where="checkpoint.roles.student.path",
        )
    fault = caught.value
    assert (fault.code, fault.exit_code) == ("checkpoint.source-mismatch", 3)
    assert fault.where == "checkpoint.roles.student.path"
    assert "stage: expected 'stage1', found 'stage0p5'" in fault.why
    assert "camera_translation_transform: expected 'logd4', found 'linear'" in fault.why
    assert "step: expected 30000, found 7" in fault.why
    with pytest.raises(SolarError) as caught:
        require_source(source, expected={}, weights="ema")
    assert (caught.value.code, caught.value.exit_code) == ("checkpoint.ema-missing", 3)


def test_a_package_is_no_training_checkpoint(tmp_path, plain):
    saved(tmp_path / "run", plain, FM)
    package = export_released(tmp_path / "run", tmp_path / "package")
    assert is_package(package)
    with pytest.raises(SolarError) as caught:
        read_manifest(package)
    assert (caught.value.code, caught.value.exit_code) == ("checkpoint.released-package", 3)
    with pytest.raises(SolarError) as caught:
        export_released(package, tmp_path / "again")
    assert caught.value.exit_code == 3
    with pytest.raises(SolarError) as caught:
        export_released(tmp_path / "run", package)
    assert (caught.value.code, caught.value.exit_code) == ("checkpoint.exists", 5)


@pytest.mark.parametrize(
    "damage", ["size", "digest", "marker", "note", "payload", "nan", "keys", "shape"]
)
def test_a_damaged_package_is_refused(tmp_path, backbone, plain, damage):
    saved(tmp_path / "run", plain, FM)
    package = export_released(tmp_path / "run", tmp_path / "package")
    codes = {"checkpoint.damaged"}
    if damage == "size":
        with (package / "model.pt").open("ab") as stream:
            stream.write(b"x")
    elif damage == "digest":
        place = package / "checkpoint-manifest.json"
        place.write_bytes(place.read_bytes().replace(b'"step":7', b'"step":8'))
    elif damage == "marker":
        place = package / "COMPLETE.json"
        place.write_bytes(place.read_bytes().replace(b"manifest_digest", b"manifest_digets"))
    elif damage == "note":
        place = package / NOTE_NAME
        place.write_bytes(place.read_bytes().replace(b"live+ema", b"live"))
    elif damage == "payload":
        size = (package / "model.pt").stat().st_size
        (package / "model.pt").write_bytes(b"\0" * size)
        codes = {"weights.unreadable"}
    else:
        document = torch.load(package / "model.pt", weights_only=True)
        state = document["generator"]
        if damage == "nan":
            state["head.head.bias"][0] = float("nan")
            codes = {"weights.nonfinite"}
        elif damage == "keys":
            document["generator"] = {f"other.{name}": value for name, value in state.items()}
            codes = {"weights.no-match"}
        else:
            state["head.head.bias"] = torch.zeros(3)
            codes = {"weights.shape"}
        torch.save(document, tmp_path / "model.pt")
        package = tmp_path / "model.pt"
    for check in (True, False):
        module = backbone.build(device="meta", seed=0)
        with pytest.raises((SolarError, FaultList)) as caught:
            load_source(open_source(package), backbone, module, weights="live", check=check)
        assert caught.value.exit_code == 3
        assert caught.value.code in codes
        if check:
            assert all(parameter.is_meta for parameter in module.parameters())


def test_a_critic_is_read_from_its_own_file(tmp_path, backbone, plain):
    state = {f"model.{name}": p.detach() + 2.0 for name, p in plain.named_parameters()}
    torch.save({"generator": state, "global_step": 5}, tmp_path / "model.pt")
    torch.save({"critic": state, "global_step": 5}, tmp_path / "critic.pt")
    module = backbone.build(device="meta", seed=0)
    report = load_source(
        open_source(tmp_path / "model.pt"), backbone, module, weights="live", role="critic"
    )
    assert report.stripped_prefix == "model."
    assert equal(module, dict(plain.named_parameters()), 2.0)


def test_a_trained_critic_goes_out_in_its_own_file_and_comes_back(tmp_path, backbone, plain):
    judge = backbone.build(device="cpu", seed=12)
    saved(tmp_path / "run", plain, SGF, critic=judge)
    package = export_released(tmp_path / "run", tmp_path / "package")
    manifest = json.loads((package / "checkpoint-manifest.json").read_bytes())
    assert manifest["required_components"] == ["critic.pt", "model.pt"]
    assert [row["path"] for row in manifest["files"]] == ["critic.pt", "model.pt"]
    document = torch.load(package / "critic.pt", weights_only=True)
    assert set(document) == {"critic", "global_step"}
    assert all(name.startswith("model.") for name in document["critic"])
    source = open_source(package)
    for role, expected in (("critic", judge), ("student", plain)):
        module = backbone.build(device="meta", seed=0)
        load_source(source, backbone, module, weights="live", role=role)
        assert equal(module, dict(expected.named_parameters()))
    (package / "critic.pt").unlink()
    with pytest.raises(SolarError) as caught:
        open_source(package)
    assert (caught.value.code, caught.value.exit_code) == ("checkpoint.damaged", 3)


def test_the_release_note_decides_what_model_weights_are(tmp_path, backbone, plain):
    saved(tmp_path / "run", plain, FM)
    package = export_released(tmp_path / "run", tmp_path / "package", default_weights="live")
    source = open_source(package)
    assert source.weights_role("model") == "live"
    assert source.weights_id("model") == f"{source.identity}#release-default:live"
    assert source.weights_id("ema") == f"{source.identity}#ema"
    module = backbone.build(device="meta", seed=0)
    load_source(source, backbone, module, weights="model")
    assert equal(module, dict(plain.named_parameters()))
    assert open_source(tmp_path / "run").weights_role("model") == "ema"


@pytest.mark.parametrize("kind", ["training", "package"])
def test_weights_are_compared_with_a_model_on_meta_before_one_is_built(
    tmp_path, backbone, plain, flow_map, kind
):
    saved(tmp_path / "run", flow_map, ANYFLOW)
    place = tmp_path / "run"
    if kind == "package":
        place = export_released(place, tmp_path / "package")
    source = open_source(place)
    student = backbone.build(device="meta", seed=0)
    load_source(source, backbone, student, weights="ema", endpoint="drop", check=True)
    assert all(parameter.is_meta for parameter in student.parameters())
    other = create(
        SPEC.profiles["small"], SimpleNamespace(camera_translation_transform="linear")
    ).build(device="meta", seed=0)
    for module, endpoint in ((student, "exact"), (other, "drop")):
        with pytest.raises((SolarError, FaultList)) as caught:
            load_source(source, backbone, module, weights="ema", endpoint=endpoint, check=True)
        assert caught.value.exit_code == 3


def test_a_checkpoint_with_numbers_that_are_not_finite_is_refused(tmp_path, backbone):
    module = backbone.build(device="cpu", seed=1)
    with torch.no_grad():
        module.head.head.bias[0] = float("nan")
    saved(tmp_path / "run", module, FM)
    fresh = backbone.build(device="cpu", seed=0)
    with pytest.raises(SolarError) as caught:
        load_source(open_source(tmp_path / "run"), backbone, fresh, weights="live")
    fault = caught.value
    assert (fault.code, fault.exit_code) == ("weights.nonfinite", 3)
    assert "head.head.bias" in fault.headline
    assert "found" in fault.why
