"""A number that is not finite stops all ranks before the optimizer step, and its samples are named."""

from __future__ import annotations

import math
from pathlib import Path

from solarwm.checkpoints.manifest import read_manifest
from solarwm.runs.diagnosis import diagnose

PATCH = """
import os, torch
from solarwm.objectives import flow_matching
real = flow_matching.FlowMatching.losses
def losses(self, velocity, batch, *, seed, step, **more):
    result = real(self, velocity, batch, seed=seed, step=step, **more)
    if os.environ.get("RANK", "0") == "{rank}" and step == 2:
        {act}
    return result
flow_matching.FlowMatching.losses = losses
"""
LOSS = "result.per_sample_B[1] = float('nan')"
GRADIENT = "result.per_sample_B.register_hook(lambda gradient: gradient * float('inf'))"
WEIGHT = """
from solarwm.training import loop
real = loop._one_step
def one_step(stage, feed, *, step, **more):
    agreement = real(stage, feed, step=step, **more)
    if step == 1:
        next(iter(stage.role.parameters)).data.view(-1)[0] = float("inf")
    return agreement
loop._one_step = one_step
"""


def test_nan_loss_on_rank_one_stops_both_ranks_in_that_step(warm, tmp_path: Path) -> None:
    ended = warm.train(
        tmp_path / "run", "runtime.save_every=1", world_size=2, patch=PATCH.format(rank=1, act=LOSS)
    )
    assert ended.codes == [6, 7]
    result = ended.result
    assert (result["exit_code"], result["first_failing_rank"], result["step"]) == (7, 1, 3)
    verdict = diagnose(ended.root)
    assert verdict.verdict == "non-finite"
    assert any("rank 1 failed first" in line for line in verdict.evidence)
    named = result["context"]["samples"]
    assert [sample["slot"] for sample in named] == [3]
    assert math.isfinite(named[0]["sigma"])
    assert result["context"]["sample_ids"][0].startswith("local/")
    assert [record["step"] for record in ended.events()] == [1, 2]
    names = sorted(path.name for path in ended.root.glob("checkpoint_model_*"))
    assert names == ["checkpoint_model_000001", "checkpoint_model_000002"]


def test_infinite_gradient_on_rank_zero_is_traced_to_rank_zero(warm, tmp_path: Path) -> None:
    ended = warm.train(tmp_path / "run", world_size=2, patch=PATCH.format(rank=0, act=GRADIENT))
    assert ended.codes == [7, 6]
    assert (ended.result["exit_code"], ended.result["first_failing_rank"]) == (7, 0)
    assert ended.result["context"]["kind"] == "gradient"
    assert ended.result["step"] == 3


def test_nan_gradient_stops_sharded_ranks_before_the_step(warm, tmp_path: Path) -> None:
    ended = warm.train(
        tmp_path / "run",
        "train.fsdp.strategy=FULL_SHARD",
        world_size=2,
        patch=PATCH.format(rank=1, act=GRADIENT),
    )
    assert 7 in ended.codes
    assert ended.result["exit_code"] == 7
    assert [record["step"] for record in ended.events()] == [1, 2]


def test_weights_that_are_not_finite_are_never_saved(warm, tmp_path: Path) -> None:
    ended = warm.train(tmp_path / "run", patch=WEIGHT)
    assert ended.codes == [7]
    assert ended.result["context"]["kind"] == "weight"
    assert not list(ended.root.glob("checkpoint_model_*"))


def test_skipped_updates_are_counted_leave_all_as_it_was_and_are_bounded(
    warm, tmp_path: Path
) -> None:
    """The weights after a skipped third update are those after the second."""
    sets = ("runtime.save_every=1", "train.on_non_finite=skip", "train.max_non_finite=1")
    patch = PATCH.format(rank=1, act=LOSS)
    ended = warm.train(tmp_path / "run", *sets, world_size=2, patch=patch)
    assert ended.codes == [0, 0]
    assert ended.result["updates_skipped"] == 1
    steps = ended.events()
    assert [event["step"] for event in steps] == [1, 2, 3, 4]
    assert [event["roles"]["student"].get("skipped", False) for event in steps] == [
        False,
        False,
        True,
        False,
    ]
    (told,) = ended.events(1, kind="update_skipped")
    assert (told["code"], told["context"]["samples"][0]["slot"]) == ("train.non-finite", 3)
    (told,) = ended.events(0, kind="update_skipped")
    assert (told["step"], told["context"]["world_rank"]) == (3, 1)
    members = [
        [
            file["blake2b"]
            for file in read_manifest(ended.root / name).model_dump()["files"]
            if file["path"].endswith(".distcp")
        ]
        for name in ("checkpoint_model_000002", "checkpoint_model_000003")
    ]
    assert members[0] == members[1]
    assert len(members[0]) >= 3
    # A second one, in the run that goes on, is one too many.
    again = warm.train(
        ended.root,
        *sets,
        "train.max_steps=6",
        options=("--resume", "latest"),
        world_size=2,
        patch=patch.replace("step == 2", "step == 4"),
    )
    assert again.codes == [6, 7]
    assert (again.result["exit_code"], again.result["step"]) == (7, 5)


def test_sharded_ranks_skip_an_update_together(warm, tmp_path: Path) -> None:
    ended = warm.train(
        tmp_path / "run",
        "train.fsdp.strategy=FULL_SHARD",
        "train.on_non_finite=skip",
        "runtime.save_every=0",
        world_size=2,
        patch=PATCH.format(rank=1, act=GRADIENT),
    )
    assert ended.codes == [0, 0]
    for rank in (0, 1):
        assert [told["step"] for told in ended.events(rank, kind="update_skipped")] == [3]
    assert ended.result["updates_skipped"] == 1
