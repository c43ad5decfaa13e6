"""Weights go out to the library and come back; quantised ones run the model."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from solarwm.cli.app import run
from solarwm.errors.types import SolarError
from tests.conftest import QUICKSTART
from tests.unit.checkpoints.test_release import ANYFLOW, FM, backbone, flow_map, plain, saved

__all__ = ["backbone", "flow_map", "plain"]


def command(capsys, *words, code: int = 0) -> dict:
    assert run(["checkpoint", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_library_loads_a_diffusers_export_and_gives_the_same_output(tmp_path, capsys, plain):
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    with torch.no_grad():
        plain.head.head.weight.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    saved(tmp_path / "run", plain, FM)
    words = ("export", tmp_path / "run", "--format", "diffusers", "--weights", "live", "--verify")
    report = command(capsys, *words, "--output", tmp_path / "out")
    assert report["verified"]
    assert report["tensors"] == 15 + 27 * 6
    twin = WanTransformer3DModel.from_pretrained(tmp_path / "out", subfolder="transformer").eval()
    draw = torch.Generator().manual_seed(1)
    latents = torch.randn(1, 3, 48, 4, 6, generator=draw)
    time = torch.full((1, 3), 400.0)
    text = torch.randn(1, 16, 64, generator=draw)
    with torch.no_grad():
        ours = plain(latents, time, text)
        theirs = twin(
            latents.transpose(1, 2), timestep=time.repeat_interleave(24, 1), encoder_hidden_states=text
        ).sample.transpose(1, 2)  # fmt: skip
    assert ours.abs().max() > 0.01
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
    card = (tmp_path / "out" / "README.md").read_text()
    for word in ("wan22_ti2v_5b", "stage0p5", "live", "| step | 7 |"):
        assert word in card
    # and back: the same checkpoint starts from it
    command(capsys, "convert", tmp_path / "out", tmp_path / "back.safetensors")
    names = load_file(str(tmp_path / "back.safetensors"))
    assert "condition_embedder.time_proj.weight" in names


def test_exports_end_as_they_say(tmp_path, capsys, plain, flow_map):
    saved(tmp_path / "run", plain, FM, ema=False)
    out = ("--output", tmp_path / "out")
    words = ("export", tmp_path / "run", "--format", "safetensors")
    command(capsys, *words, *out, "--dtype", "bfloat16", "--verify")
    state = load_file(str(tmp_path / "out" / "diffusion_pytorch_model.safetensors"))
    assert {value.dtype for value in state.values()} == {torch.bfloat16}
    assert command(capsys, *words, *out, code=5)["code"] == "checkpoint.exists"
    command(capsys, *words, *out, "--overwrite")
    assert (
        command(capsys, *words, *out, "--overwrite", "--weights", "ema", code=3)["code"]
        == "checkpoint.ema-missing"
    )
    saved(tmp_path / "map", flow_map, ANYFLOW)
    words = ("export", tmp_path / "map", "--format", "diffusers", "--output", tmp_path / "two")
    answer = command(capsys, *words, code=3)
    assert answer["code"] == "weights.unexpected-tensors"
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("scheme", "most"), [("int8-block128", 0.05), ("int8-channel", 0.05), ("fp8-e4m3", 0.2)]
)
def test_a_quantised_model_runs_and_its_output_error_is_told(tmp_path, capsys, plain, scheme, most):
    with torch.no_grad():
        plain.head.head.weight.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    saved(tmp_path / "run", plain, FM)
    words = ("quantize", tmp_path / "run", tmp_path / "q.safetensors", "--scheme", scheme)
    model = ("--config", QUICKSTART.parent / "infer.yaml", "--set", "data.pixel_frames=33")
    report = command(capsys, *words, *model)
    assert 1e-5 < report["output_error"] < most
    assert len(report["layers"]) == 6 * 10


@pytest.mark.parametrize("wrapper", ["module.", "net.", "model.module.", "module._orig_mod.net."])
def test_weights_load_through_any_wrapper_and_the_report_says_which(
    tmp_path, backbone, plain, wrapper
):
    def wrapped(name):
        head, _, rest = name.partition(".")
        inner = "_checkpoint_wrapped_module." if head == "blocks" else ""
        number, _, leaf = rest.partition(".")
        return wrapper + (f"{head}.{number}.{inner}{leaf}" if inner else name)

    state = {wrapped(name): value.detach().clone() for name, value in plain.named_parameters()}
    torch.save(state, tmp_path / "model.pt")
    module = backbone.build(device="meta", seed=0)
    report = backbone.load(module, tmp_path / "model.pt", weights="live")
    assert report.stripped_prefix == wrapper.replace("_orig_mod.", "")
    assert report.loaded == report.expected
    own = dict(module.named_parameters())
    assert all(torch.equal(own[name], value) for name, value in plain.named_parameters())
    torch.save({f"other.{name}": value for name, value in state.items()}, tmp_path / "none.pt")
    with pytest.raises(SolarError) as caught:
        backbone.load(backbone.build(device="meta", seed=0), tmp_path / "none.pt", weights="live")
    assert (caught.value.code, caught.value.exit_code) == ("weights.no-match", 3)
