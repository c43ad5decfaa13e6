from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from solarwm.backbones.wan22_core.model import WanTransformer, initialise
from solarwm.backbones.wan22_core.names import from_diffusers, to_diffusers
from solarwm.backbones.wan22_core.weights import export_state, load_weights
from solarwm.errors.types import FaultList, SolarError
from solarwm.routes.spec import ModelDims

DIMS = ModelDims(
    dim=16,
    num_layers=1,
    num_heads=2,
    ffn_dim=32,
    in_channels=4,
    out_channels=4,
    patch=(1, 2, 2),
    text_dim=8,
    text_len=4,
    freq_dim=8,
)


def model(seed=0, device="cpu"):
    if device == "meta":
        with torch.device("meta"):
            return WanTransformer(DIMS)
    module = WanTransformer(DIMS)
    initialise(module, seed)
    return module


def state(seed=7, naming="published", prefix=""):
    tensors = export_state(model(seed), naming=naming)
    return {prefix + name: value.clone() for name, value in tensors.items()}


def equal(module, seed=7):
    reference = model(seed).state_dict()
    return all(torch.equal(value, reference[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("naming", ["published", "diffusers"])
@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_safetensors_file_fills_the_model(tmp_path, naming, prefix, device):
    path = tmp_path / "weights.safetensors"
    save_file(state(naming=naming, prefix=prefix), path)
    module = model(device=device)
    report = load_weights(module, path, weights="live")
    assert (report.naming, report.stripped_prefix) == (naming, prefix)
    assert report.loaded == report.expected == 15 + 27 * DIMS.num_layers
    assert equal(module)


def test_a_directory_of_files_is_one_source(tmp_path):
    tensors = sorted(state().items())
    save_file(dict(tensors[:20]), tmp_path / "a.safetensors")
    save_file(dict(tensors[20:]), tmp_path / "b.safetensors")
    module = model()
    load_weights(module, tmp_path, weights="live")
    assert equal(module)


def test_a_tensor_in_two_files_is_refused(tmp_path):
    save_file(state(), tmp_path / "a.safetensors")
    save_file(state(), tmp_path / "b.safetensors")
    with pytest.raises(SolarError, match=r"is in a.safetensors and in b.safetensors") as caught:
        load_weights(model(), tmp_path, weights="live")
    assert (caught.value.code, caught.value.exit_code) == ("weights.duplicate", 3)


@pytest.mark.parametrize(("weights", "seed"), [("live", 1), ("ema", 2)])
def test_model_pt_holds_live_and_ema(tmp_path, weights, seed):
    document = {"generator": state(1), "generator_ema": state(2), "global_step": 5}
    torch.save(document, tmp_path / "model.pt")
    module = model()
    load_weights(module, tmp_path, weights=weights)
    assert equal(module, seed)


def test_missing_ema_is_told(tmp_path):
    torch.save({"generator": state(1)}, tmp_path / "model.pt")
    with pytest.raises(SolarError) as caught:
        load_weights(model(), tmp_path / "model.pt", weights="ema")
    assert caught.value.code == "weights.role-missing"


def test_missing_unexpected_and_wrong_shapes_are_told_at_once(tmp_path):
    tensors = state()
    tensors["blocks.9.extra"] = tensors.pop("head.head.bias")
    tensors["head.head.weight"] = torch.zeros(3, 3)
    save_file(tensors, tmp_path / "w.safetensors")
    module = model()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(FaultList) as caught:
        load_weights(module, tmp_path / "w.safetensors", weights="live")
    codes = {fault.code for fault in caught.value.faults}
    assert codes == {"weights.missing-tensors", "weights.unexpected-tensors", "weights.shape"}
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def damaged(tmp_path, kind):
    path = tmp_path / f"w.{'pt' if kind == 'pickle' else 'safetensors'}"
    if kind == "pickle":
        torch.save({"generator": {"a": print}}, path)
    elif kind == "cut":
        save_file(state(), path)
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "empty":
        save_file({}, path)
    elif kind == "foreign":
        save_file({"a": torch.zeros(2)}, path)
    elif kind == "mixed":
        tensors = state(prefix="model.")
        tensors["head.head.bias"] = tensors.pop("model.head.head.bias")
        save_file(tensors, path)
    return path


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("pickle", "weights.unreadable"),
        ("cut", "weights.unreadable"),
        ("empty", "weights.empty"),
        ("foreign", "weights.no-match"),
        ("mixed", "weights.mixed-prefix"),
        ("absent", "weights.missing"),
    ],
)
def test_a_bad_file_is_exit_3_with_its_own_code(tmp_path, kind, code):
    with pytest.raises(SolarError) as caught:
        load_weights(model(), damaged(tmp_path, kind), weights="live")
    assert (caught.value.code, caught.value.exit_code) == (code, 3)


def test_names_go_there_and_back():
    for name in [*model().state_dict(), "delta_embedding.2.bias"]:
        assert from_diffusers(to_diffusers(name)) == name
    assert to_diffusers("blocks.3.norm3.weight") == "blocks.3.norm2.weight"
    assert to_diffusers("nothing.like.it") is None
