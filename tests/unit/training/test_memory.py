"""The memory plan against real tensors at tiny size and against arithmetic at the released one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from solarwm.config.resolve import resolve
from solarwm.distributed.sharding import local
from solarwm.training.memory import (
    CONTEXT_BYTES,
    MemoryPlanner,
    MemorySettings,
    fake_group,
    saved_bytes,
)

EXAMPLES = Path(__file__).parents[3] / "configs" / "examples"
RELEASED = EXAMPLES / "wan22_ti2v_5b" / "train_stage0p5_fm_81f.yaml"
QUICKSTART = EXAMPLES / "quickstart" / "stage0p5.yaml"
STAGE1 = EXAMPLES / "quickstart" / "stage1.yaml"
NUM_RELEASED = 4_999_787_712


@pytest.fixture(scope="module")
def released() -> MemoryPlanner:
    return MemoryPlanner(resolve(RELEASED))


def settings(path: Path, **changes) -> MemorySettings:
    return replace(MemorySettings.of(resolve(path), local_world_size=8), **changes)


@pytest.mark.parametrize("world_size", [8, 256])
def test_full_sharding_divides_weights_gradients_and_moments(
    released: MemoryPlanner, world_size: int
) -> None:
    found = released.estimate(settings(RELEASED, world_size=world_size, strategy="FULL_SHARD"))
    assert released.num_parameters == NUM_RELEASED
    share = NUM_RELEASED / world_size
    assert found.parameters / (4 * share) == pytest.approx(1, abs=0.05)
    assert found.optimizer == 2 * found.parameters
    assert found.average == found.parameters
    assert found.parameters < found.gradients < found.parameters + 2 * 2**30
    assert found.total == sum(found.plain()[f"{n}_bytes"] for n in _PARTS)


_PARTS = (
    "parameters", "gathered", "gradients", "optimizer", "average", "activations", "overhead",
)  # fmt: skip


def test_hybrid_sharding_divides_by_the_devices_of_one_node(released: MemoryPlanner) -> None:
    hybrid = released.estimate(settings(RELEASED, world_size=256, strategy="HYBRID_SHARD"))
    node = released.estimate(settings(RELEASED, world_size=8, strategy="FULL_SHARD"))
    assert hybrid.parameters == node.parameters


def test_every_saving_is_what_a_new_estimate_says(released: MemoryPlanner) -> None:
    before = settings(RELEASED, activation_checkpointing=False, strategy="HYBRID_SHARD")
    whole = released.estimate(before).total
    found = {saving.change: saving for saving in released.savings(before)}
    after = replace(before, activation_checkpointing=True)
    saving = found["train.fsdp.activation_checkpointing=true"]
    assert saving.total == released.estimate(after).total
    assert saving.saves == whole - saving.total > 0
    sizes = [saving.saves for saving in released.savings(before)]
    assert sizes == sorted(sizes, reverse=True)


def test_counted_activations_are_those_of_a_real_forward() -> None:
    resolved = resolve(QUICKSTART, ["data.pixel_frames=33"])
    planner = MemoryPlanner(resolved)
    asked = MemorySettings.of(resolved, local_world_size=2)
    backbone = planner._backbone
    module = backbone.build(device="cpu", seed=0).train()
    meta = planner._batch(asked.micro_batch_size)
    batch = replace(
        meta,
        latents_BFCHW=torch.randn(meta.latents_BFCHW.shape),
        text_BTD=torch.randn(meta.text_BTD.shape),
        viewmats_BF44=torch.eye(4).expand(meta.viewmats_BF44.shape).clone(),
        intrinsics_B33=torch.eye(3).expand(meta.intrinsics_B33.shape).clone(),
    )
    with saved_bytes(module) as counted:
        conditions = backbone.conditions(batch)
        sigma = torch.full(batch.latents_BFCHW.shape[:2], 0.5)
        backbone.velocity(module, batch.latents_BFCHW, sigma, conditions)
    found = planner.estimate(replace(asked, activation_checkpointing=False)).activations
    assert found == pytest.approx(counted[0], rel=0.05)
    assert found > 2**20


def test_a_flow_map_keeps_keys_and_values_of_the_clean_half_and_a_copy_for_further_forwards(
    tmp_path,
) -> None:
    text = STAGE1.read_text()
    plain = tmp_path / "plain.yaml"
    plain.write_text(
        re.sub(r"  (objective_variant|anyflow_fuse_guidance_scale): .*\n", "", text).replace(
            "  objective: anyflow_forward_map\n", "  objective: flow_matching\n"
        )
    )
    sets = ["data.pixel_frames=33", "model.max_prior_clean_chunks=1"]
    found = []
    for path in (plain, STAGE1):
        resolved = resolve(path, sets)
        planner = MemoryPlanner(resolved)
        asked = MemorySettings.of(resolved, local_world_size=2)
        kept = planner.estimate(replace(asked, activation_checkpointing=True)).activations
        found.append(kept)
    dims, batch = planner._backbone.profile.dims, planner._batch(asked.micro_batch_size)
    rows, frames, _, height, width = batch.latents_BFCHW.shape
    of_clean_half = 2 * dims.num_layers * rows * frames * height * width * dims.dim * 4
    assert found[1] - found[0] == pytest.approx(2 * of_clean_half, rel=0.1)


def test_checkpointing_keeps_far_less_and_replicas_hold_everything() -> None:
    resolved = resolve(QUICKSTART, ["data.pixel_frames=33"])
    planner = MemoryPlanner(resolved)
    asked = MemorySettings.of(resolved, local_world_size=2)
    plain = planner.estimate(replace(asked, activation_checkpointing=False))
    thrifty = planner.estimate(replace(asked, activation_checkpointing=True))
    assert thrifty.activations < 0.5 * plain.activations
    assert plain.parameters == 4 * planner.num_parameters
    assert plain.overhead > CONTEXT_BYTES


def test_the_fake_group_leaves_nothing_behind_and_shards_as_asked() -> None:
    asked = settings(RELEASED, world_size=4, local_world_size=4)
    with fake_group(asked) as group:
        assert group.world_size == 4
        assert torch.distributed.is_initialized()
    assert not torch.distributed.is_initialized()
    assert local(torch.zeros(3)).shape == (3,)


def test_the_command_gives_a_verdict_by_its_exit_code() -> None:
    command = [sys.executable, "-m", "solarwm", "plan", "memory", "--config", str(QUICKSTART)]
    for limit, code, fits in (("8", 0, True), ("0.5", 5, False)):
        done = subprocess.run(
            [*command, "--device-memory", limit, "--json"], capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        value = json.loads(done.stdout)
        assert value["fits"] is fits
        assert value["estimate"]["total_bytes"] > 2**30
    wrong = subprocess.run([*command, "--set", "model.family=x"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
