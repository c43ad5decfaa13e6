"""Checkpoints of several gloo ranks: sharded state, other world sizes, and ranks that fail."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from solarwm.checkpoints import optimizer as slots
from solarwm.checkpoints.manifest import read_manifest
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError

FACTS = Facts(
    occurrences=8,
    route="r",
    resolved_digest="0" * 64,
    numerics="corrected",
    topology={},
    versions={},
    contract={},
    config={},
)
Work = Callable[[int], None]


def on_ranks(tmp_path: Path, world_size: int, work: Work) -> list[int]:
    """Run `work(world_rank)` in forked gloo ranks; their exit codes in rank order."""
    meeting = tmp_path / f"meeting-{world_size}-{len(list(tmp_path.iterdir()))}"
    children: list[int] = []
    for world_rank in range(world_size):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                dist.init_process_group(
                    "gloo",
                    init_method=f"file://{meeting}",
                    rank=world_rank,
                    world_size=world_size,
                    timeout=timedelta(seconds=60),
                )
                work(world_rank)
                code = 0
            except SolarError as fault:
                print(f"rank {world_rank}: {fault} {fault.why}", flush=True)
                code = fault.exit_code
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def build() -> tuple[nn.Module, torch.optim.AdamW]:
    """A module whose dimensions do not divide by the world size, sharded when there are ranks."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    if dist.is_initialized() and dist.get_world_size() > 1:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in module:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
    return module, torch.optim.AdamW(module.parameters(), lr=0.01)


def train(module: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """A few steps on data that is the same on every rank."""
    torch.manual_seed(2)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.randn(4, 5)).square().mean().backward()
        optimizer.step()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The unsharded values. A collective when sharded."""
    gather = getattr(tensor, "full_tensor", None)
    return gather() if gather is not None else tensor.detach()


def save_work(root: Path) -> Work:
    """Train three steps, save model, optimizer and an EMA that is twice the model."""

    def work(world_rank: int) -> None:
        module, optimizer = build()
        train(module, optimizer, 3)
        names = slots.named_parameters(module)
        ema = {name: (tensor * 2).detach() for name, tensor in slots.named_tensors(module).items()}
        role = RoleState(
            model=slots.named_tensors(module),
            optimizer=slots.optimizer_tensors(optimizer, names),
            ema=ema,
        )
        state = CheckpointState(
            roles={"student": role}, facts=FACTS, rank_record={"world_rank": world_rank}
        )
        path = CheckpointStore(root).save(3, state)
        values = {name: whole(tensor) for name, tensor in slots.named_tensors(module).items()}
        moments = {name: whole(t) for name, t in slots.optimizer_tensors(optimizer, names).items()}
        if world_rank == 0:
            torch.save({"model": values, "optimizer": moments}, root / "expected.pt")
        assert CheckpointStore(root).rank_record(path, world_rank) == {"world_rank": world_rank}

    return work


def load_work(root: Path) -> Work:
    """Load into fresh weights and compare every whole tensor bit for bit."""

    def work(world_rank: int) -> None:
        path = CheckpointStore(root).latest()
        assert path is not None
        module, optimizer = build()
        names = slots.named_parameters(module)
        member = read_manifest(path).member("student-optimizer")
        assert member is not None
        moments = slots.allocate_state(optimizer, names, member, place=str(path))
        ema = {n: torch.zeros_like(t).detach() for n, t in slots.named_tensors(module).items()}
        role = RoleState(model=slots.named_tensors(module), optimizer=moments, ema=ema)
        record = CheckpointStore(root).load_into(path, {"student": role})
        assert record.step == 3
        expected = torch.load(root / "expected.pt", weights_only=True)
        for name, tensor in slots.named_tensors(module).items():
            assert torch.equal(whole(tensor), expected["model"][name]), name
            assert torch.equal(whole(ema[name]), expected["model"][name] * 2), name
        for name, tensor in moments.items():
            assert torch.equal(whole(tensor), expected["optimizer"][name]), name

    return work


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2)])
def test_sharded_state_comes_back_equal_on_another_number_of_ranks(
    tmp_path: Path, saved_by: int, loaded_by: int
) -> None:
    root = tmp_path / "run"
    root.mkdir()
    assert on_ranks(tmp_path, saved_by, save_work(root)) == [0] * saved_by
    CheckpointStore(root).verify(root / "checkpoint_model_000003")
    assert read_manifest(root / "checkpoint_model_000003").world_size == saved_by
    assert on_ranks(tmp_path, loaded_by, load_work(root)) == [0] * loaded_by


def test_a_rank_that_cannot_write_fails_the_save_on_all_and_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()

    class Broken(type(CheckpointStore(root)._fs)):  # type: ignore[misc]
        def create(self, path: Path) -> object:
            raise OSError(28, "No space left on device")

    def work(world_rank: int) -> None:
        module, _ = build()
        fs = Broken() if world_rank == 1 else CheckpointStore(root)._fs
        state = CheckpointState(
            roles={"student": RoleState(model=slots.named_tensors(module))}, facts=FACTS
        )
        CheckpointStore(root, fs=fs).save(1, state)

    assert on_ranks(tmp_path, 2, work) == [6, 5]
    assert list(root.iterdir()) == []


def test_a_rank_that_dies_during_a_save_ends_it_on_the_others(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()

    class Dying(type(CheckpointStore(root)._fs)):  # type: ignore[misc]
        def create(self, path: Path) -> object:
            os._exit(9)

    def work(world_rank: int) -> None:
        module, _ = build()
        fs = Dying() if world_rank == 1 else CheckpointStore(root)._fs
        state = CheckpointState(
            roles={"student": RoleState(model=slots.named_tensors(module))}, facts=FACTS
        )
        CheckpointStore(root, fs=fs).save(1, state)

    assert on_ranks(tmp_path, 2, work) == [6, 9]
    assert list(root.iterdir()) == []


def test_damage_is_found_by_every_rank_whichever_rank_reads_it(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    assert on_ranks(tmp_path, 2, save_work(root)) == [0, 0]
    file = root / "checkpoint_model_000003" / "student-ema" / "__1_0.distcp"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    codes = on_ranks(tmp_path, 2, load_work(root))
    assert sorted(codes) in ([3, 3], [3, 6])


def test_unsharded_parts_that_differ_are_not_saved_as_one(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()

    def work(world_rank: int) -> None:
        model = {"w": torch.arange(6.0)}
        part = {"w": torch.arange(3.0) + 3 * world_rank}
        state = CheckpointState(roles={"student": RoleState(model=model, ema=part)}, facts=FACTS)
        CheckpointStore(root).save(1, state)

    assert on_ranks(tmp_path, 2, work) == [70, 6]
    assert list(root.iterdir()) == []
