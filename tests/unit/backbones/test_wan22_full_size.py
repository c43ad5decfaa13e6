"""The released 5B model as it is trained: built and sharded without memory, counted, run for its shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_core.conditions import WanConditions
from solarwm.config.resolve import resolve
from solarwm.distributed.sharding import lay_out, local
from solarwm.training.memory import MemoryPlanner, MemorySettings, fake_group

STAGE1 = (
    Path(__file__).parents[3]
    / "configs/examples/wan22_ti2v_5b/train_stage1_tf_anyflow_v1_5_81f.yaml"
)
NUM_PARAMETERS = 4_999_787_712
ENDPOINT_PARAMETERS = 256 * 3072 + 3072 + 3072 * 3072 + 3072


@pytest.fixture(scope="module")
def resolved():
    return resolve(STAGE1)


@pytest.fixture(scope="module")
def backbone(resolved):
    return create(resolved.route.spec.profiles["released"], resolved.config.model)


@pytest.mark.parametrize(
    ("world_size", "strategy", "sharers"),
    [(8, "FULL_SHARD", 8), (256, "FULL_SHARD", 256), (256, "HYBRID_SHARD", 8)],
)
def test_the_flow_map_of_full_size_is_built_and_sharded(
    resolved, backbone, world_size, strategy, sharers
):
    settings = replace(
        MemorySettings.of(resolved, local_world_size=8),
        world_size=world_size,
        local_world_size=8,
        strategy=strategy,
    )
    module = backbone.build(device="meta", seed=0, endpoint_gate=0.25)
    assert len(module.state_dict()) == 15 + 27 * 30 + 4
    assert sum(p.numel() for p in module.parameters()) == NUM_PARAMETERS + ENDPOINT_PARAMETERS
    with fake_group(settings) as group:
        lay_out(
            module,
            group,
            strategy=strategy,
            block_class=backbone.spec.block_class,
            param_dtype="bfloat16",
            reduce_dtype="float32",
        )
        held = sum(local(p).numel() for p in module.parameters())
        assert sum(p.numel() for p in module.parameters()) == NUM_PARAMETERS + ENDPOINT_PARAMETERS
    assert held == pytest.approx((NUM_PARAMETERS + ENDPOINT_PARAMETERS) / sharers, rel=0.05)
    estimate = MemoryPlanner(resolved).estimate(settings)
    print(f"world size {world_size}, {strategy}: {estimate.total / 2**30:.1f} GiB a device")
    assert estimate.total > 16 * held


def test_the_published_clip_runs_through_the_causal_layouts(backbone):
    """17010 tokens of teacher forcing, and a chunk of a rollout, on the meta device."""
    module = backbone.build(device="meta", seed=0, endpoint_gate=0.25)
    with torch.device("meta"):
        latents = torch.empty(1, 21, 48, 30, 54)
        level = torch.empty(1, 21)
        text = torch.empty(1, 512, 4096)
    conditions = WanConditions(text_BTD=text, viewmats_BF44=None, intrinsics_BF33=None, camera=None)
    window = backbone.window
    assert (window.chunk_frames, window.prior_chunks, window.slot_frames) == (3, 5, 21)
    assert (window.sink_frames, window.aligned, window.clean_windowed) == (0, True, True)
    context = backbone.clean_context(latents)
    cache = backbone.open_cache(latents)
    with torch.no_grad():
        out = backbone.velocity(
            module,
            latents,
            level,
            conditions,
            layout="teacher_forcing",
            endpoint_BF=level,
            context=context,
        )
        assert out.shape == latents.shape
        assert context.keys[29].shape == (1, 21 * 405, 24, 128)
        for start in (0, 3):
            here = slice(start, start + 3)
            chunk, times = latents[:, here], level[:, here]
            out = backbone.velocity(module, chunk, times, conditions, layout="cached", cache=cache)
            assert out.shape == chunk.shape
            backbone.commit(module, chunk, conditions, cache)
    assert cache.places == 18
    assert cache.nbytes == 30 * 3 * 18 * 405 * 3072 * 4
