"""Saves written beside training: the same bytes, told when complete, and never a lost fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp

SLOW = """
import time
from solarwm.checkpoints import transaction
real = transaction.write_shards
def slow(*args, **kwargs):
    time.sleep({seconds})
    return real(*args, **kwargs)
transaction.write_shards = slow
"""
FULL = """
import os
from solarwm.checkpoints import transaction
from solarwm.errors.types import SolarError
real = transaction.write_shards
def full(tasks, private, **kwargs):
    if os.environ["RANK"] == "{rank}" and "000004" in str(private):
        raise SolarError("disk.full", "made to fail")
    return real(tasks, private, **kwargs)
transaction.write_shards = full
"""


def tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    found = {}
    for folder in sorted(checkpoint.glob("student-*")):
        metadata = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
        state = {
            key: torch.empty(value.size, dtype=value.properties.dtype)
            for key, value in metadata.items()
        }
        load_dcp(state, storage_reader=FileSystemReader(str(folder)), no_dist=True)
        found.update({f"{folder.name}/{key}": value for key, value in state.items()})
    return found


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("strategy", ["none", "FULL_SHARD"])
def test_a_save_beside_training_holds_the_weights_of_its_step(
    warm, tmp_path: Path, strategy: str
) -> None:
    sets = ("train.max_steps=6", f"train.fsdp.strategy={strategy}")
    plain = warm.train(tmp_path / "plain", *sets, world_size=2)
    beside = warm.train(
        tmp_path / "beside",
        *sets,
        "checkpoint.async_save=always",
        world_size=2,
        patch=SLOW.format(seconds=1.0),
    )
    assert (plain.codes, beside.codes) == ([0, 0], [0, 0])
    for step in (2, 4, 6):
        name = f"checkpoint_model_{step:06d}"
        mine, theirs = tensors(plain.root / name), tensors(beside.root / name)
        assert set(mine) == set(theirs)
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    told = beside.events(kind="checkpoint")
    assert [event["step"] for event in told] == [2, 4, 6]
    assert all(event["write_s"] >= 1.0 for event in told)
    assert beside.result["last_checkpoint_step"] == 6
    lines = (beside.root / "events" / "rank-00000.jsonl").read_text().splitlines()
    kinds = [line for line in lines if '"checkpoint"' in line or '"optimizer_step"' in line]
    steps = [('"optimizer_step"' in line) for line in kinds]
    assert steps[:3] == [True, True, True], "step 3 is taken while the save of step 2 is written"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_save_that_fails_beside_training_ends_the_run_with_its_own_code(
    warm, tmp_path: Path, rank: int
) -> None:
    ended = warm.train(
        tmp_path / "run",
        "train.max_steps=400",
        "checkpoint.async_save=always",
        world_size=2,
        patch=FULL.format(rank=rank),
    )
    assert sorted(ended.codes) == [5, 6]
    assert ended.codes[rank] == 5
    assert (ended.result["exit_code"], ended.result["first_failing_rank"]) == (5, rank)
    assert ended.result["last_checkpoint_step"] == 2
    names = sorted(path.name for path in ended.root.glob("*checkpoint_model_*"))
    assert names == ["checkpoint_model_000002"]
    assert ended.events()[-1]["step"] < 400


def test_a_save_asked_while_one_is_written_is_skipped_when_told_so_and_counted(
    warm, tmp_path: Path
) -> None:
    ended = warm.train(
        tmp_path / "run",
        "train.max_steps=6",
        "checkpoint.async_save=always",
        "checkpoint.when_busy=skip",
        world_size=2,
        patch=SLOW.format(seconds=8.0),
    )
    assert ended.codes == [0, 0]
    assert [event["step"] for event in ended.events(kind="checkpoint_skipped")] == [4, 6]
    assert [event["step"] for event in ended.events(kind="checkpoint")] == [2]


def test_a_stop_waits_for_the_save_that_is_under_way(warm, tmp_path: Path) -> None:
    ended = warm.train(
        tmp_path / "run",
        "checkpoint.async_save=always",
        options=("--stop-after", "2"),
        patch=SLOW.format(seconds=2.0),
    )
    assert ended.codes == [0]
    assert (ended.root / "checkpoint_model_000002" / "COMPLETE.json").exists()
    again = warm.train(tmp_path / "run", options=("--resume", "latest"))
    assert [event["step"] for event in again.events()] == [1, 2, 3, 4]
