"""What every backbone with a heavy half must do, for every row of the route table that names it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from solarwm.data.tensors import LatentBatch
from solarwm.routes.table import ROUTES


def spec_of(route):
    module, name = route.backbone_spec.split(":")
    return getattr(import_module(module), name)


def heavy(spec):
    module, name = spec.heavy.split(":")
    return getattr(import_module(module), name) if find_spec(module) else None


def objective_exists(route):
    return find_spec(route.objective_factory.split(":")[0]) is not None


def tiny(route):
    spec = spec_of(route)
    return heavy(spec)(spec.profiles["tiny"], None)


def layouts_of(route):
    """What the route asks of its backbone."""
    if route.causal_mode == "self_gradient_forcing":
        return {"bidirectional", "teacher_forcing", "cached"}
    return {route.causal_mode}


def is_runnable(route):
    return heavy(spec_of(route)) and layouts_of(route) <= set(tiny(route).layouts)


FAMILIES = sorted({route.family for route in ROUTES if heavy(spec_of(route))})
ROUTE_KEYS = [route.key for route in ROUTES]
RUNNABLE = [r for r in ROUTES if is_runnable(r) and objective_exists(r)]
LEARNING = [r for r in RUNNABLE if r.objective == "flow_matching" and len(r.roles) == 1]
CAUSAL = sorted({r.family for r in RUNNABLE if r.causal_mode != "bidirectional"})


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def backbone(family):
    spec = spec_of(next(route for route in ROUTES if route.family == family))
    transform = spec.camera_transforms[0]
    return heavy(spec)(
        spec.profiles["tiny"], SimpleNamespace(camera_translation_transform=transform)
    )


@pytest.fixture
def module(backbone):
    module = backbone.build(device="cpu", seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.02, generator=generator)
    return module


def batch(backbone, count=2):
    profile = backbone.profile
    geometry, dims = profile.geometry, profile.dims
    frames = geometry.latents(profile.default_frames)
    height = profile.default_height // geometry.spatial_stride
    width = profile.default_width // geometry.spatial_stride
    generator = torch.Generator().manual_seed(2)
    view = torch.eye(4).repeat(count, frames, 1, 1)
    view[..., 0, 3] = torch.arange(frames) * 0.1
    view[:, 0] = torch.eye(4)
    return LatentBatch(
        latents_BFCHW=torch.randn(
            count, frames, geometry.channels, height, width, generator=generator
        ),
        text_BTD=torch.randn(count, dims.text_len, dims.text_dim, generator=generator),
        viewmats_BF44=view,
        intrinsics_B33=torch.tensor([[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1]]).repeat(count, 1, 1),
        sample_ids=tuple(f"clip-{i}" for i in range(count)),
        start_frames=(0,) * count,
        slots=tuple(range(count)),
        occurrences=tuple(range(count)),
    )


def velocity(backbone, module, data, sigma=0.6):
    level = torch.full(data.latents_BFCHW.shape[:2], sigma)
    return backbone.velocity(module, data.latents_BFCHW, level, backbone.conditions(data))


def test_at_least_one_backbone_is_under_contract():
    assert FAMILIES


@pytest.mark.parametrize("key", ROUTE_KEYS)
def test_the_light_half_imports_neither_torch_nor_numpy(key):
    route = next(route for route in ROUTES if route.key == key)
    module = route.backbone_spec.split(":")[0]
    code = f"import sys, {module}; print(sorted({{'torch', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_velocity_has_the_shape_of_the_latents_in_fp32(backbone, module):
    data = batch(backbone)
    out = velocity(backbone, module, data)
    assert out.shape == data.latents_BFCHW.shape
    assert out.dtype == torch.float32
    assert out.isfinite().all()


def test_equal_seeds_build_equal_models_and_equal_calls_give_equal_bits(backbone, module):
    twin = backbone.build(device="cpu", seed=0)
    other = backbone.build(device="cpu", seed=1)
    states = [m.state_dict() for m in (backbone.build(device="cpu", seed=0), twin, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])
    data = batch(backbone)
    assert torch.equal(velocity(backbone, module, data), velocity(backbone, module, data))


def test_samples_do_not_see_each_other(backbone, module):
    data = batch(backbone)
    single = LatentBatch(
        latents_BFCHW=data.latents_BFCHW[1:],
        text_BTD=data.text_BTD[1:],
        viewmats_BF44=data.viewmats_BF44[1:],
        intrinsics_B33=data.intrinsics_B33[1:],
        sample_ids=data.sample_ids[1:],
        start_frames=data.start_frames[1:],
        slots=data.slots[1:],
        occurrences=data.occurrences[1:],
    )
    with torch.no_grad():
        both = velocity(backbone, module, data)[1:]
        alone = velocity(backbone, module, single)
    torch.testing.assert_close(both, alone, atol=1e-5, rtol=1e-4)


def test_every_parameter_gets_a_finite_gradient(backbone, module):
    velocity(backbone, module, batch(backbone)).square().mean().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_the_camera_is_seen(backbone, module):
    data = batch(backbone)
    moved = data.viewmats_BF44.clone()
    moved[:, 1:, 1, 3] += 0.7
    other = LatentBatch(
        **{name: getattr(data, name) for name in LatentBatch.__slots__ if name != "viewmats_BF44"},
        viewmats_BF44=moved,
    )
    with torch.no_grad():
        difference = velocity(backbone, module, data) - velocity(backbone, module, other)
    assert difference.abs().max() > 1e-4


@pytest.mark.parametrize("naming", ["published", "diffusers"])
def test_weights_go_out_and_in_under_both_namings(backbone, module, naming, tmp_path):
    from safetensors.torch import save_file

    weights = import_module(type(backbone).__module__.rsplit(".", 1)[0] + ".weights")
    state = weights.export_state(module, naming=naming)
    save_file({name: value.clone() for name, value in state.items()}, tmp_path / "w.safetensors")
    empty = backbone.build(device="meta", seed=0)
    report = backbone.load(empty, tmp_path / "w.safetensors", weights="live")
    assert (report.naming, report.loaded) == (naming, report.expected)
    assert (report.missing, report.unexpected) == ((), ())
    loaded = empty.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in module.state_dict().items())


def test_what_the_spec_names_exists_in_the_module(backbone, module):
    classes = {type(part).__name__ for part in module.modules()}
    assert backbone.spec.block_class in classes
    names = [name for name, _ in module.named_modules()]
    for target in backbone.spec.lora_targets:
        assert any(name.endswith(f".{target}") for name in names), target


def test_the_released_profile_is_built_on_meta_without_memory(backbone):
    spec = backbone.spec
    released = heavy(spec)(
        spec.profiles["released"],
        SimpleNamespace(camera_translation_transform=spec.camera_transforms[0]),
    ).build(device="meta", seed=0)
    assert all(parameter.is_meta for parameter in released.parameters())


def test_released_5b_has_the_published_tensor_count():
    spec = spec_of(next(route for route in ROUTES if route.family == "wan22_ti2v_5b"))
    module = heavy(spec)(spec.profiles["released"], None).build(device="meta", seed=0)
    assert len(module.state_dict()) == 15 + 27 * 30
    assert sum(p.numel() for p in module.parameters()) == 4_999_787_712


def test_the_shipped_codec_goes_from_pixels_to_latents_and_back(backbone):
    profile = backbone.profile
    codec = backbone.codec(base_path=None, assets=None, device=torch.device("cpu"))
    frames, latents = profile.default_frames, profile.geometry.latents(profile.default_frames)
    generator = torch.Generator().manual_seed(0)
    size = (frames, profile.default_height, profile.default_width, 3)
    pixels = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
    encoded = codec.encode_video(pixels)
    stride = profile.geometry.spatial_stride
    assert encoded.shape == (
        latents,
        profile.geometry.channels,
        size[1] // stride,
        size[2] // stride,
    )
    assert torch.equal(codec.encode_video(pixels), encoded)
    decoded = codec.decode_video(encoded)
    assert decoded.shape == pixels.shape
    assert decoded.dtype == torch.uint8
    text = codec.encode_text(["a room", ""])
    assert text.shape == (2, profile.dims.text_len, profile.dims.text_dim)
    assert len(codec.digest) >= 32


@pytest.mark.parametrize("route", LEARNING, ids=lambda route: route.key)
def test_the_objective_of_the_route_learns(route):
    spec = spec_of(route)
    backbone = heavy(spec)(spec.profiles["tiny"], None)
    module_name, factory = route.objective_factory.split(":")
    config = SimpleNamespace(
        model=SimpleNamespace(
            family=route.family, timestep_shift=spec.training_shift, numerics="auto"
        ),
        train=SimpleNamespace(
            timestep_mode="uniform_per_video",
            num_train_timesteps=1000,
            i2v_image_condition_dropout=0.1,
        ),
    )
    objective = getattr(import_module(module_name), factory)(config)
    module = backbone.build(device="cpu", seed=0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    data = batch(backbone)
    conditions = backbone.conditions(data)

    def context():
        if route.causal_mode == "bidirectional":
            return None
        return backbone.clean_context(data.latents_BFCHW, shared=False)

    course = []
    for _ in range(8):
        result = objective.losses(
            lambda x, sigma: backbone.velocity(
                module, x, sigma, conditions, layout=route.causal_mode, context=context()
            ),
            data,
            seed=0,
            step=0,
        )
        assert set(objective.loss_names) <= set(result.metrics)
        loss = result.per_sample_B.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        course.append(loss.item())
    assert course[-1] < 0.8 * course[0]


@pytest.mark.parametrize("family", CAUSAL)
def test_a_cached_rollout_equals_the_teacher_forced_forward(backbone, module):
    data = batch(backbone)
    frames, chunk = data.latents_BFCHW.shape[1], backbone.window.chunk_frames
    conditions = backbone.conditions(data)
    noisy = torch.randn(data.latents_BFCHW.shape, generator=torch.Generator().manual_seed(3))
    level = torch.full(noisy.shape[:2], 0.7)
    context = backbone.clean_context(data.latents_BFCHW)
    cache = backbone.open_cache(noisy)
    assert backbone.numerics == "corrected"
    with torch.no_grad():
        expected = backbone.velocity(
            module, noisy, level, conditions, layout="teacher_forcing", context=context
        )
        assert context.filled
        for start in range(0, frames, chunk):
            here = slice(start, start + chunk)
            part = backbone.frames(conditions, start, start + chunk)
            out = backbone.velocity(
                module, noisy[:, here], level[:, here], part, layout="cached", cache=cache
            )
            torch.testing.assert_close(out, expected[:, here], atol=1e-5, rtol=1e-4)
            backbone.commit(module, data.latents_BFCHW[:, here], part, cache)
    assert cache.position == frames


@pytest.mark.parametrize("family", CAUSAL)
def test_a_flow_map_at_its_own_time_is_the_model_without_endpoint(backbone, module):
    mapped = backbone.build(device="cpu", seed=0, endpoint_gate=0.25)
    missing, unexpected = mapped.load_state_dict(module.state_dict(), strict=False)
    assert not unexpected
    assert len(missing) == 4
    data = batch(backbone)
    level = torch.full(data.latents_BFCHW.shape[:2], 0.6)
    conditions = backbone.conditions(data)
    with torch.no_grad():
        expected = velocity(backbone, module, data)
        for name in missing:
            twin = name.replace("delta_", "time_")
            mapped.get_parameter(name).copy_(module.get_parameter(twin))
        same = backbone.velocity(mapped, data.latents_BFCHW, level, conditions, endpoint_BF=level)
        jump = backbone.velocity(
            mapped, data.latents_BFCHW, level, conditions, endpoint_BF=level * 0.5
        )
    torch.testing.assert_close(same, expected, atol=1e-5, rtol=1e-4)
    assert (jump - expected).abs().max() > 1e-4
