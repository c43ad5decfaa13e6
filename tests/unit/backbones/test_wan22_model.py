from __future__ import annotations

import copy

import pytest
import torch

from solarwm.backbones.wan22_core.model import WanTransformer, initialise
from solarwm.backbones.wan22_core.weights import export_state
from solarwm.nn.camera_attention import camera_matrices
from solarwm.routes.spec import ModelDims
from solarwm.training.stage import checkpoint_activations

DIMS = ModelDims(
    dim=48,
    num_layers=2,
    num_heads=4,
    ffn_dim=96,
    in_channels=6,
    out_channels=5,
    patch=(1, 2, 2),
    text_dim=12,
    text_len=7,
    freq_dim=16,
)


@pytest.fixture(scope="module")
def model():
    module = WanTransformer(DIMS)
    initialise(module, seed=3)
    torch.manual_seed(0)
    torch.nn.init.normal_(module.head.head.weight, std=0.1)
    return module


def inputs(frames=3, batch=2):
    torch.manual_seed(1)
    latents = torch.randn(batch, frames, 6, 4, 6)
    time = torch.rand(batch, frames) * 1000
    time[:, 0] = 0
    return latents, time, torch.randn(batch, 7, 12)


def camera(frames=3, batch=2):
    view = torch.eye(4).repeat(batch, frames, 1, 1)
    view[..., 0, 3] = torch.arange(frames) * 0.3
    return camera_matrices(view, torch.eye(3).expand(batch, 3, 3))


def library_model(module):
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    twin = WanTransformer3DModel(
        patch_size=DIMS.patch,
        num_attention_heads=DIMS.num_heads,
        attention_head_dim=DIMS.head_dim,
        in_channels=DIMS.in_channels,
        out_channels=DIMS.out_channels,
        text_dim=DIMS.text_dim,
        freq_dim=DIMS.freq_dim,
        ffn_dim=DIMS.ffn_dim,
        num_layers=DIMS.num_layers,
    )
    twin.load_state_dict(export_state(module, naming="diffusers"))
    return twin


def test_forward_and_gradients_equal_the_library_model(model):
    twin = library_model(model)
    latents, time, text = inputs()
    ours = model(latents, time, text)
    per_token = time.repeat_interleave(6, dim=1)
    theirs = twin(
        latents.transpose(1, 2).contiguous(),
        timestep=per_token,
        encoder_hidden_states=text,
        return_dict=False,
    )[0].transpose(1, 2)
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
    model.zero_grad()
    ours.square().mean().backward()
    theirs.square().mean().backward()
    expected = dict(twin.named_parameters())
    from solarwm.backbones.wan22_core.names import to_diffusers

    for name, parameter in model.named_parameters():
        reference = expected[to_diffusers(name)].grad
        scale = reference.abs().max().clamp(min=1e-3)
        assert ((parameter.grad - reference).abs().max() / scale) < 1e-4, name


def test_cameras_change_the_output_and_identity_cameras_do_not(model):
    latents, time, text = inputs()
    plain = model(latents, time, text)
    still = camera_matrices(torch.eye(4).repeat(2, 3, 1, 1), torch.eye(3).expand(2, 3, 3))
    torch.testing.assert_close(model(latents, time, text, still), plain, atol=1e-5, rtol=1e-5)
    assert (model(latents, time, text, camera()) - plain).abs().max() > 1e-3


def test_activation_checkpointing_gives_the_same_gradients(model):
    latents, time, text = inputs()
    gradients = []
    for flag in (False, True):
        twin = copy.deepcopy(model)
        if flag:
            checkpoint_activations(twin, block_class="WanBlock")
        twin(latents, time, text, camera()).square().mean().backward()
        gradients.append([p.grad for p in twin.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_initial_values_depend_on_seed_and_name_only():
    first, second, other = WanTransformer(DIMS), WanTransformer(DIMS), WanTransformer(DIMS)
    torch.manual_seed(123)
    initialise(first, 0)
    initialise(second, 0)
    initialise(other, 1)
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.blocks[0].self_attn.q.weight, other.blocks[0].self_attn.q.weight)
    assert not torch.equal(first.blocks[0].self_attn.q.weight, first.blocks[0].self_attn.k.weight)
    assert first.head.head.weight.abs().max() == 0


def test_bf16_parameters_give_fp32_output_close_to_fp32(model):
    latents, time, text = inputs()
    half = copy.deepcopy(model).bfloat16()
    out = half(latents, time, text, camera())
    assert out.dtype == torch.float32
    exact = model(latents, time, text, camera())
    assert (out - exact).norm() / exact.norm() < 0.05


def test_text_longer_than_the_model_takes_is_refused(model):
    latents, time, _ = inputs()
    with pytest.raises(ValueError, match="8 text rows"):
        model(latents, time, torch.randn(2, 8, 12))


def test_latents_of_another_shape_are_refused(model):
    _, time, text = inputs()
    with pytest.raises(ValueError, match="latents of 5 channels"):
        model(torch.randn(2, 3, 5, 4, 6), time, text)


def test_adapters_on_q_k_v_act():
    from peft import LoraConfig, inject_adapter_in_model

    module = WanTransformer(DIMS)
    initialise(module, seed=3)
    torch.nn.init.normal_(module.head.head.weight, std=0.1)
    latents, time, text = inputs()
    plain = module(latents, time, text).detach()
    config = LoraConfig(r=2, target_modules=r".*self_attn\.(q|k|v|o)", init_lora_weights=False)
    inject_adapter_in_model(config, module)
    adapted = module(latents, time, text)
    assert (adapted - plain).abs().max() > 1e-4
    adapted.square().mean().backward()
    trained = [n for n, p in module.named_parameters() if "lora_" in n and p.grad is not None]
    assert len(trained) == DIMS.num_layers * 4 * 2
