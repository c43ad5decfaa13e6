"""Training and generation with sequence-parallel ranks, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp

from solarwm.runs.diagnosis import diagnose
from tests.conftest import QUICKSTART, Ended

SP = "distributed.sequence_parallel_size=2"
CHECKED = "distributed.check_collectives=true"
COMMON = ("train.max_steps=4", "train.optimizer.lr=5e-3", "runtime.save_every=2")


def _weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    folder = checkpoint / "student-model"
    metadata = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {
        key: torch.empty(value.size, dtype=value.properties.dtype)
        for key, value in metadata.items()
    }
    load_dcp(state, storage_reader=FileSystemReader(str(folder)), no_dist=True)
    return state


def _assert_like(one: Ended, other: Ended, *, first: int = 0) -> None:
    """Losses and gradient norms of every step, and the weights at the end."""
    mine, theirs = other.events(), one.events()[first:]
    assert len(mine) == len(theirs) > 0
    for a, b in zip(mine, theirs, strict=True):
        for name, value in b["losses"].items():
            assert a["losses"][name] == pytest.approx(value, rel=1e-5), name
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-4)
    name = "checkpoint_model_000004"
    left, right = _weights(one.root / name), _weights(other.root / name)
    assert set(left) == set(right)
    for key, value in left.items():
        torch.testing.assert_close(right[key], value, atol=2e-4, rtol=2e-3, msg=key)


@pytest.fixture(scope="module")
def one(warm, tmp_path_factory) -> Ended:
    ended = warm.train(tmp_path_factory.mktemp("one") / "run", *COMMON)
    assert ended.codes == [0], ended.texts
    return ended


@pytest.fixture(scope="module")
def two(warm, tmp_path_factory) -> Ended:
    """Two ranks that share every clip, sharded, with a validation on the way."""
    ended = warm.train(
        tmp_path_factory.mktemp("two") / "run",
        *COMMON,
        SP,
        CHECKED,
        "train.grad_accum=2",
        "train.fsdp.strategy=FULL_SHARD",
        "train.fsdp.activation_checkpointing=true",
        world_size=2,
    )
    assert ended.codes == [0, 0], ended.texts
    return ended


def test_two_sharded_ranks_of_one_clip_train_like_one_rank(one, two) -> None:
    _assert_like(one, two)
    ids = [
        [micro["identity"] for record in two.events(world_rank) for micro in record["microbatches"]]
        for world_rank in range(2)
    ]
    assert ids[0] == ids[1]


def test_four_ranks_in_two_groups_train_like_one_rank_and_validate(warm, one, tmp_path) -> None:
    passes = json.dumps([{"name": "p", "weights": "live", "num_inference_steps": 2}])
    ended = warm.train(
        tmp_path / "four",
        *COMMON,
        SP,
        "train.grad_accum=1",
        "runtime.validate_every=4",
        "validation.sample_count=2",
        f"validation.passes={passes}",
        world_size=4,
    )
    assert ended.codes == [0] * 4, ended.texts
    _assert_like(one, ended)
    report = ended.events(0, "validation")[0]["report"]
    assert (report["cases"], report["slots_missing"]) == (2, [])


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_goes_on_under_another_group_size(warm, one, two, tmp_path, world_size) -> None:
    """From 2 ranks of one clip to 1 rank, and from 1 rank to 2 ranks of one clip."""
    source = (two if world_size == 1 else one).root / "checkpoint_model_000002"
    sets = (SP, "train.grad_accum=2") if world_size == 2 else ()
    ended = warm.train(
        tmp_path / "run",
        *COMMON,
        *sets,
        world_size=world_size,
        options=("--resume", str(source)),
    )
    assert ended.codes == [0] * world_size, ended.texts
    _assert_like(one, ended, first=2)


def test_ranks_of_one_clip_may_stand_on_two_machines(warm, one, tmp_path) -> None:
    patch = "import os\nos.environ.update(LOCAL_WORLD_SIZE='1', LOCAL_RANK='0')\n"
    ended = warm.train(
        tmp_path / "run",
        *COMMON,
        SP,
        "train.grad_accum=2",
        "train.fsdp.strategy=HYBRID_SHARD",
        world_size=2,
        patch=patch,
        env={"GLOO_SOCKET_IFNAME": "lo"},
    )
    assert ended.codes == [0, 0], ended.texts
    _assert_like(one, ended)


def test_two_ranks_generate_every_clip_together(warm, one, tmp_path) -> None:
    config = QUICKSTART.parent / "infer.yaml"
    passes = json.dumps([{"name": "p", "weights": "live", "num_inference_steps": 2}])

    def generate(root: Path, *sets: str, world_size: int) -> Ended:
        values = [
            f"data.index_root={warm._world}",
            f"data.transport.root={warm._world}",
            "data.pixel_frames=33",
            f"distributed.world_size={world_size}",
            f"checkpoint.path={one.root}",
            "validation.sample_count=2",
            f"validation.passes={passes}",
            f"runtime.output_dir={root}",
            *sets,
        ]
        words = [word for value in values for word in ("--set", value)]
        arguments = ["infer", "--config", str(config), *words]
        ended = warm.launch(root, arguments, world_size=world_size)
        assert ended.codes == [0] * world_size, ended.texts
        return ended

    alone = generate(tmp_path / "alone", world_size=1)
    shared = generate(tmp_path / "shared", SP, CHECKED, world_size=2)
    figures = [
        json.loads((ended.root / "generation" / "quality.json").read_text())["passes"]["p"]
        for ended in (alone, shared)
    ]
    for name, value in figures[0].items():
        if isinstance(value, float):
            assert figures[1][name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("sample", "batch = replace(batch, sample_ids=('other', *batch.sample_ids[1:]))"),
        ("start frame", "batch = replace(batch, start_frames=(7, *batch.start_frames[1:]))"),
        ("prompt", "batch = replace(batch, text_BTD=batch.text_BTD + 1e-6)"),
        ("camera", "batch = replace(batch, viewmats_BF44=batch.viewmats_BF44 * (1 + 1e-6))"),
    ],
)
def test_ranks_of_one_clip_with_another_sample_stop_and_name_the_field(
    warm, tmp_path, field, change
) -> None:
    patch = f"""
import os
from dataclasses import replace
from solarwm.training import feed
real = feed.collate
def collate(*args, **kwargs):
    batch = real(*args, **kwargs)
    if os.environ["RANK"] == "1":
        {change}
    return batch
feed.collate = collate
"""
    _assert_stops(warm, tmp_path, patch, field)


@pytest.mark.parametrize(("field", "purpose"), [("noisy latents", "'noise'"), ("times", "'time'")])
def test_ranks_of_one_clip_with_another_draw_stop_and_name_it(
    warm, tmp_path, field, purpose
) -> None:
    patch = f"""
import os
from solarwm.objectives import flow_matching
real = flow_matching.keyed_generator
def keyed(seed, purpose, step, slot):
    other = os.environ["RANK"] == "1" and purpose == {purpose}
    return real(seed + other, purpose, step, slot)
flow_matching.keyed_generator = keyed
"""
    _assert_stops(warm, tmp_path, patch, field)


def _assert_stops(warm, tmp_path: Path, patch: str, field: str) -> None:
    ended = warm.train(
        tmp_path / "run", *COMMON, SP, "train.grad_accum=2", world_size=2, patch=patch
    )
    assert ended.codes == [6, 6], ended.texts
    for world_rank in range(2):
        assert "distributed.peers-differ" in ended.texts[world_rank]
        assert f"but not its {field}" in ended.texts[world_rank]
    assert not list(ended.root.glob("checkpoint_model_*"))
    verdict = diagnose(ended.root)
    assert verdict.verdict == "ranks-differ"
    assert any(field in line for line in verdict.evidence)
