"""Teacher forcing, shared contexts, caches and flow maps of the Wan transformer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.backbone import WanBackbone
from solarwm.camera.torch import invert_se3
from solarwm.data.tensors import LatentBatch
from solarwm.nn.chunks import ChunkWindow
from solarwm.routes.spec import ModelDims

DIMS = ModelDims(
    dim=48,
    num_layers=3,
    num_heads=2,
    ffn_dim=64,
    in_channels=4,
    out_channels=4,
    patch=(1, 2, 2),
    text_dim=12,
    text_len=6,
    freq_dim=16,
)
CHUNK = 3


def backbone_of(window: ChunkWindow, numerics: str = "corrected") -> WanBackbone:
    profile = replace(SPEC.profiles["tiny"], dims=DIMS)
    return WanBackbone(
        SPEC, profile, translation_transform="linear", numerics=numerics, window=window
    )


def corrected(prior: int | None = 1, *, sink: int = 0, slots: int | None = 12) -> ChunkWindow:
    return ChunkWindow(chunk_frames=CHUNK, prior_chunks=prior, sink_frames=sink, slot_frames=slots)


def published(prior: int | None = 1) -> ChunkWindow:
    return ChunkWindow(chunk_frames=CHUNK, prior_chunks=prior, aligned=False, clean_windowed=False)


def module_of(backbone, *, gate=None):
    module = backbone.build(device="cpu", seed=3, endpoint_gate=gate)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.any() or name.startswith("delta_embedding"):
                parameter.normal_(std=0.2, generator=generator)
    return module


def track(batch: int, frames: int, *, offset: float = 0.0) -> torch.Tensor:
    """Turning and walking cameras, world to camera, `offset` away from the world's origin."""
    angle = 0.15 * torch.arange(frames) * (1 + 0.2 * torch.arange(batch)[:, None])
    view = torch.eye(4).repeat(batch, frames, 1, 1)
    view[..., 0, 0], view[..., 0, 2] = angle.cos(), angle.sin()
    view[..., 2, 0], view[..., 2, 2] = -angle.sin(), angle.cos()
    view[..., 2, 3] = 0.3 * torch.arange(frames)
    away = torch.eye(4)
    away[:3, 3] = offset
    return view @ away


def data(batch: int = 2, frames: int = 12, *, offset: float = 0.0):
    generator = torch.Generator().manual_seed(7)
    clean, noisy = torch.randn(2, batch, frames, 4, 4, 6, generator=generator)
    sigma = torch.rand(batch, frames, generator=generator)
    sigma[:, 0] = 0
    sample = LatentBatch(
        latents_BFCHW=clean,
        text_BTD=torch.randn(batch, 5, 12, generator=generator),
        viewmats_BF44=track(batch, frames, offset=offset),
        intrinsics_B33=torch.tensor([[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1]]).repeat(batch, 1, 1),
        sample_ids=tuple(map(str, range(batch))),
        start_frames=(0,) * batch,
        slots=tuple(range(batch)),
        occurrences=tuple(range(batch)),
    )
    return sample, noisy, sigma


def forced(backbone, module, sample, noisy, sigma, *, context=None, endpoint=None):
    context = context or backbone.clean_context(sample.latents_BFCHW, shared=False)
    return backbone.velocity(
        module,
        noisy,
        sigma,
        backbone.conditions(sample),
        layout="teacher_forcing",
        endpoint_BF=endpoint,
        context=context,
    )


@torch.no_grad()
def rolled_out(backbone, module, sample, noisy, sigma, *, calls: int = 1):
    """Velocities of every chunk, given a cache of the clean chunks before it."""
    conditions = backbone.conditions(sample)
    cache = backbone.open_cache(noisy)
    parts = []
    for start in range(0, noisy.shape[1], CHUNK):
        here = slice(start, start + CHUNK)
        part = backbone.frames(conditions, start, start + CHUNK)
        for _ in range(calls):
            out = backbone.velocity(
                module, noisy[:, here], sigma[:, here], part, layout="cached", cache=cache
            )
        parts.append(out)
        backbone.commit(module, sample.latents_BFCHW[:, here], part, cache)
    return torch.cat(parts, dim=1), cache


@pytest.mark.parametrize(
    ("window", "frames"),
    [
        (corrected(1), 12),
        (corrected(2), 12),
        (corrected(0), 9),
        (corrected(None), 12),
        (corrected(1, sink=3), 12),
        (corrected(1, sink=6, slots=15), 15),
    ],
)
def test_cached_rollout_equals_teacher_forcing_chunk_by_chunk(window, frames):
    backbone = backbone_of(window)
    module = module_of(backbone)
    sample, noisy, sigma = data(frames=frames)
    out, _ = rolled_out(backbone, module, sample, noisy, sigma, calls=2)
    with torch.no_grad():
        expected = forced(backbone, module, sample, noisy, sigma)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_published_positions_leave_training_once_the_window_slides():
    sample, noisy, sigma = data()
    outs = {}
    for numerics, window in (("published", published()), ("corrected", corrected())):
        backbone = backbone_of(window, numerics)
        module = module_of(backbone)
        out, _ = rolled_out(backbone, module, sample, noisy, sigma)
        with torch.no_grad():
            gap = out - forced(backbone, module, sample, noisy, sigma)
        outs[numerics] = gap.abs().amax(dim=(0, 2, 3, 4))
    assert outs["corrected"].max() < 1e-5
    assert outs["published"][: 2 * CHUNK].max() < 1e-5
    assert outs["published"][2 * CHUNK :].min() > 100 * outs["corrected"].max()


def test_published_clean_chunks_see_more_history_than_a_cache_holds():
    window = corrected(1)
    sample, noisy, sigma = data(frames=12)
    unbounded = backbone_of(replace(window, clean_windowed=False))
    windowed = backbone_of(window)
    module = module_of(windowed)
    with torch.no_grad():
        gap = (
            forced(unbounded, module, sample, noisy, sigma)
            - forced(windowed, module, sample, noisy, sigma)
        ).abs()
    assert gap[:, :9].max() < 1e-6
    assert gap[:, 9:].max() > 1e-4


@pytest.mark.parametrize("numerics", ["published", "corrected"])
def test_every_chunk_of_a_long_rollout_equals_a_forward_of_its_window(numerics):
    """Keys of a single layer depend on nothing but their own frames, so no cache is needed."""
    window = published(1) if numerics == "published" else corrected(1)
    profile = replace(SPEC.profiles["tiny"], dims=replace(DIMS, num_layers=1))
    backbone = WanBackbone(
        SPEC, profile, translation_transform="linear", numerics=numerics, window=window
    )
    module = module_of(backbone)
    sample, noisy, sigma = data(frames=24)
    out, _ = rolled_out(backbone, module, sample, noisy, sigma)
    conditions = backbone.conditions(sample)
    span = 2 * CHUNK if numerics == "published" else 12
    for stop in range(span, 25, CHUNK):
        whole, last = slice(stop - span, stop), slice(stop - CHUNK, stop)
        clean = sample.latents_BFCHW[:, whole]
        seen = backbone.frames(conditions, whole.start, stop)
        with torch.no_grad():
            if numerics == "published":  # positions count from the window's oldest frame
                mixed = torch.cat([clean[:, :-CHUNK], noisy[:, last]], dim=1)
                level = torch.cat([torch.zeros(2, CHUNK), sigma[:, last]], dim=1)
                expected = backbone.velocity(module, mixed, level, seen)
            else:  # the window ends where training clips end
                expected = backbone.velocity(
                    module,
                    noisy[:, whole],
                    sigma[:, whole],
                    seen,
                    layout="teacher_forcing",
                    context=backbone.clean_context(clean),
                )
        torch.testing.assert_close(out[:, last], expected[:, -CHUNK:], atol=2e-5, rtol=1e-5)


def test_long_rollouts_keep_positions_in_the_trained_range_and_memory_constant():
    window = corrected(2, slots=12)
    backbone = backbone_of(window)
    module = module_of(backbone)
    sample, noisy, sigma = data(batch=1, frames=45)
    conditions = backbone.conditions(sample)
    cache = backbone.open_cache(noisy)
    sizes, last = set(), []
    with torch.no_grad():
        for start in range(0, 45, CHUNK):
            slots = cache.slots()
            assert max(slots.values()) < 12
            assert min(slots.values()) >= 0
            assert len(set(slots.values())) == len(slots)
            last.append(slots[start + CHUNK - 1])
            part = backbone.frames(conditions, start, start + CHUNK)
            here = slice(start, start + CHUNK)
            backbone.velocity(
                module, noisy[:, here], sigma[:, here], part, layout="cached", cache=cache
            )
            backbone.commit(module, noisy[:, here], part, cache)
            sizes.add(cache.nbytes)
    assert last[:4] == [2, 5, 8, 11]
    assert set(last[4:]) == {11}
    assert len(sizes) == 1
    assert cache.position == 45
    assert cache.visible_frames == (39, 40, 41, 42, 43, 44)


def test_far_cameras_are_seen_from_the_window():
    """A world far from the origin costs nothing when cameras are rebased, and bf16 cameras much."""
    errors = {}
    for numerics, offset in itertools.product(("published", "corrected"), (0.0, 200.0)):
        window = replace(corrected(1), aligned=True)
        backbone = backbone_of(window, numerics)
        module = module_of(backbone)
        sample, noisy, sigma = data(frames=9, offset=offset)
        exact, _ = rolled_out(backbone, module.double(), _double(sample), noisy.double(), sigma)
        rough, _ = rolled_out(backbone, module.bfloat16(), sample, noisy, sigma)
        tail = slice(2 * CHUNK, None)
        errors[numerics, offset] = float((exact - rough)[:, tail].norm() / exact[:, tail].norm())
    assert errors["published", 200.0] > 3 * errors["corrected", 200.0]
    assert errors["corrected", 200.0] < 1.5 * errors["corrected", 0.0]


def _double(sample):
    return replace(
        sample, latents_BFCHW=sample.latents_BFCHW.double(), text_BTD=sample.text_BTD.double()
    )


def test_rebasing_the_world_changes_nothing():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data(frames=9)
    out, _ = rolled_out(backbone, module, sample, noisy, sigma)
    base = invert_se3(track(2, 9)[:, 4:5])
    moved = replace(sample, viewmats_BF44=sample.viewmats_BF44 @ base)
    other, _ = rolled_out(backbone, module, moved, noisy, sigma)
    torch.testing.assert_close(out, other, atol=2e-5, rtol=1e-5)


def test_a_shared_context_gives_later_forwards_the_values_of_the_first():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data()
    context = backbone.clean_context(sample.latents_BFCHW)
    first = forced(backbone, module, sample, noisy, sigma, context=context)
    again = forced(backbone, module, sample, noisy, sigma, context=context)
    torch.testing.assert_close(first, again, atol=1e-6, rtol=1e-5)
    other = forced(backbone, module, sample, noisy * 0.5, sigma, context=context)
    alone = forced(backbone, module, sample, noisy * 0.5, sigma)
    torch.testing.assert_close(other, alone, atol=1e-6, rtol=1e-5)
    index = torch.tensor([1, 0, 1])
    rows = backbone.velocity(
        module,
        noisy[index],
        sigma[index],
        backbone.rows(backbone.conditions(sample), index),
        layout="teacher_forcing",
        context=context.rows(index),
    )
    torch.testing.assert_close(rows, first[index], atol=1e-6, rtol=1e-5)


def test_gradients_reach_parameters_through_the_clean_half_only_where_it_is_run():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data()
    clean = sample.latents_BFCHW.requires_grad_()
    forced(backbone, module, sample, noisy, sigma).square().mean().backward()
    assert clean.grad is not None
    seen = clean.grad.abs().amax(dim=(0, 2, 3, 4))
    assert seen[:9].min() > 0
    assert seen[9:].max() == 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    context = backbone.clean_context(sample.latents_BFCHW)
    with torch.no_grad():
        forced(backbone, module, sample, noisy, sigma, context=context)
    clean.grad = None
    forced(backbone, module, sample, noisy, sigma, context=context).square().mean().backward()
    assert clean.grad is None


def test_activation_checkpointing_leaves_values_gradients_and_contexts_alone():
    from solarwm.training.stage import checkpoint_activations

    results = []
    for flag in (False, True):
        backbone = backbone_of(corrected(1))
        module = module_of(backbone)
        if flag:
            checkpoint_activations(module, block_class="WanBlock")
        sample, noisy, sigma = data()
        context = backbone.clean_context(sample.latents_BFCHW)
        forced(backbone, module, sample, noisy, sigma, context=context).square().mean().backward()
        assert len(context.keys) == DIMS.num_layers
        results.append([p.grad for p in module.parameters()] + context.keys)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_history_committed_at_once_equals_one_committed_chunk_by_chunk():
    backbone = backbone_of(corrected(2))
    module = module_of(backbone)
    sample, noisy, sigma = data()
    conditions = backbone.conditions(sample)
    single, whole = backbone.open_cache(noisy), backbone.open_cache(noisy)
    with torch.no_grad():
        for start in range(0, 9, CHUNK):
            part = backbone.frames(conditions, start, start + CHUNK)
            backbone.commit(module, sample.latents_BFCHW[:, start : start + CHUNK], part, single)
        head = backbone.frames(conditions, 0, 9)
        backbone.commit(module, sample.latents_BFCHW[:, :9], head, whole)
        tail = backbone.frames(conditions, 9, 12)
        outs = [
            backbone.velocity(
                module, noisy[:, 9:], sigma[:, 9:], tail, layout="cached", cache=cache
            )
            for cache in (single, whole)
        ]
    torch.testing.assert_close(outs[0], outs[1], atol=1e-5, rtol=1e-5)
    for layer in range(DIMS.num_layers):
        for a, b in zip(single.committed(layer), whole.committed(layer), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_a_cleared_cache_is_as_good_as_new():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data()
    fresh, cache = rolled_out(backbone, module, sample, noisy, sigma)
    cache.clear()
    conditions = backbone.conditions(sample)
    with torch.no_grad():
        part = backbone.frames(conditions, 0, CHUNK)
        out = backbone.velocity(
            module, noisy[:, :CHUNK], sigma[:, :CHUNK], part, layout="cached", cache=cache
        )
    torch.testing.assert_close(out, fresh[:, :CHUNK], atol=1e-6, rtol=1e-6)


def test_another_prompt_is_not_answered_with_the_old_one():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data(frames=CHUNK)
    conditions = backbone.conditions(sample)
    other = backbone.with_text(conditions, sample.text_BTD[:1] + 1.0)
    cache = backbone.open_cache(noisy)

    def ask(asked, used):
        with torch.no_grad():
            return backbone.velocity(module, noisy, sigma, asked, layout="cached", cache=used)

    first = ask(conditions, cache)
    second = ask(other, cache)
    torch.testing.assert_close(second, ask(other, backbone.open_cache(noisy)))
    assert (first - second).abs().max() > 1e-4


def test_a_flow_map_at_its_own_time_is_the_model_without_endpoint():
    backbone = backbone_of(corrected(1))
    plain = backbone.build(device="cpu", seed=3)
    mapped = backbone.build(device="cpu", seed=3, endpoint_gate=0.25)
    sample, noisy, sigma = data()
    with torch.no_grad():
        for module in (plain, mapped):
            module.head.head.weight.copy_(
                torch.linspace(-1, 1, 768).view_as(plain.head.head.weight)
            )
        expected = forced(backbone, plain, sample, noisy, sigma)
        torch.testing.assert_close(forced(backbone, mapped, sample, noisy, sigma), expected)
        same = forced(backbone, mapped, sample, noisy, sigma, endpoint=sigma)
        torch.testing.assert_close(same, expected)
        jump = forced(backbone, mapped, sample, noisy, sigma, endpoint=sigma * 0.5)
    assert (jump - expected).abs().max() > 1e-4


def test_the_gate_mixes_the_two_time_embeddings():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone, gate=0.3)
    time, end = torch.tensor([[900.0, 40.0]]), torch.tensor([[500.0, 40.0]])
    from solarwm.backbones.wan22_core.blocks import sinusoid

    waves = [sinusoid(x, DIMS.freq_dim).float() for x in (time, end)]
    expected = 0.7 * module.time_embedding(waves[0]) + 0.3 * module.delta_embedding(waves[1])
    torch.testing.assert_close(module.embed_time(time, end), expected)


def test_wrong_calls_are_refused():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data()
    conditions = backbone.conditions(sample)
    cache = backbone.open_cache(noisy)
    part = backbone.frames(conditions, 0, CHUNK)
    with pytest.raises(ValueError, match="keeps no gradients"):
        backbone.velocity(
            module, noisy[:, :CHUNK], sigma[:, :CHUNK], part, layout="cached", cache=cache
        )
    with pytest.raises(ValueError, match="takes a context"):
        backbone.velocity(module, noisy, sigma, conditions, layout="teacher_forcing")
    with pytest.raises(ValueError, match="no flow map"):
        backbone.velocity(module, noisy, sigma, conditions, endpoint_BF=sigma)
    with pytest.raises(ValueError, match="clean half is"):
        forced(
            backbone,
            module,
            replace(sample, latents_BFCHW=noisy[:, :9]),
            noisy,
            sigma,
            context=backbone.clean_context(noisy[:, :9]),
        )
    with torch.no_grad():
        with pytest.raises(ValueError, match="chunk by chunk"):
            backbone.velocity(
                module, noisy[:, :2], sigma[:, :2], part, layout="cached", cache=cache
            )
        backbone.commit(module, noisy[:, :CHUNK], part, cache)
        with pytest.raises(ValueError, match="empty cache"):
            backbone.commit(module, noisy[:, :6], backbone.frames(conditions, 0, 6), cache)


def test_a_camera_changed_before_the_commit_is_seen():
    backbone = backbone_of(corrected(1))
    module = module_of(backbone)
    sample, noisy, sigma = data(frames=6)

    def rolled(view, *, detour):
        cache = backbone.open_cache(noisy)
        with torch.no_grad():
            first = backbone.conditions(replace(sample, viewmats_BF44=view[:, :3]))
            backbone.commit(module, sample.latents_BFCHW[:, :3], first, cache)
            if detour:
                asked = view[:, 3:].clone()
                asked[..., 0, 3] += 2.0
                other = backbone.conditions(replace(sample, viewmats_BF44=asked))
                ask(other, cache)
                asked.copy_(view[:, 3:])
                return ask(other, cache)
            return ask(backbone.conditions(replace(sample, viewmats_BF44=view[:, 3:])), cache)

    def ask(conditions, cache):
        return backbone.velocity(
            module, noisy[:, 3:], sigma[:, 3:], conditions, layout="cached", cache=cache
        )

    view = sample.viewmats_BF44
    straight = rolled(view, detour=False)
    torch.testing.assert_close(rolled(view, detour=True), straight, atol=1e-5, rtol=1e-5)
