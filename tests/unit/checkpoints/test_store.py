"""Saving, finding, loading and thinning out checkpoints in one process."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from solarwm.checkpoints import optimizer as slots
from solarwm.checkpoints.directory import find, scan
from solarwm.checkpoints.manifest import read_manifest
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.errors.types import SolarError

FACTS = Facts(
    occurrences=12,
    route="f:s:c:o",
    resolved_digest="0" * 64,
    numerics="corrected",
    topology={"world_size": 1},
    versions={"torch": "x"},
    contract={"family": "f"},
    config={"name": "n"},
    trainer={"ema_updates": 3},
)


def tiny(value: float, *, ema: bool = True) -> CheckpointState:
    """One small tensor everywhere."""
    tensors = {"w": torch.full((3,), value)}
    role = RoleState(model=tensors, ema={"w": tensors["w"] * 2} if ema else None)
    return CheckpointState(roles={"student": role}, facts=FACTS)


def trained(steps: int) -> tuple[nn.Module, torch.optim.AdamW]:
    """A module with a buffer, mixed dtypes and a strided parameter, after a few AdamW steps."""
    torch.manual_seed(7)
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3).to(torch.bfloat16))
    module[0].weight.data = torch.randn(5, 4).t()
    groups: list[Any] = [
        {"params": list(module[0].parameters()), "lr": 3e-4, "betas": (0.9, 0.95)},
        {"params": [*module[1].parameters(), *module[2].parameters()], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        hidden = module[1](module[0](torch.randn(6, 5)))
        module[2](hidden.to(torch.bfloat16)).float().square().mean().backward()
        optimizer.step()
    return module, optimizer


def full_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
    """All of a module and its optimizer."""
    names = slots.named_parameters(module)
    role = RoleState(
        model=slots.named_tensors(module), optimizer=slots.optimizer_tensors(optimizer, names)
    )
    groups = slots.describe_groups(optimizer, names)
    facts = FACTS.model_copy(update={"optimizers": {"student": groups}})
    return CheckpointState(roles={"student": role}, facts=facts)


def restored(store: CheckpointStore, path: Path) -> tuple[nn.Module, torch.optim.AdamW]:
    """A module and optimizer built afresh and filled from a checkpoint."""
    module, optimizer = trained(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    optimizer.param_groups[0]["lr"] = 99.0
    names = slots.named_parameters(module)
    member = read_manifest(path).member("student-optimizer")
    assert member is not None
    tensors = slots.allocate_state(optimizer, names, member, place=str(path))
    role = RoleState(model=slots.named_tensors(module), optimizer=tensors)
    record = store.load_into(path, {"student": role})
    groups = record.facts.optimizers["student"]
    slots.restore_groups(optimizer, names, groups, place=str(path))
    return module, optimizer


def step_on(module: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Weights after one more step on fixed data."""
    torch.manual_seed(3)
    optimizer.zero_grad()
    hidden = module[1](module[0](torch.randn(6, 5)))  # type: ignore[index]
    module[2](hidden.to(torch.bfloat16)).float().square().mean().backward()  # type: ignore[index]
    optimizer.step()
    return [parameter.detach().clone() for parameter in module.parameters()]


def test_a_loaded_optimizer_goes_on_bit_for_bit(tmp_path: Path) -> None:
    module, optimizer = trained(3)
    store = CheckpointStore(tmp_path)
    path = store.save(3, full_state(module, optimizer))
    other, resumed = restored(store, path)
    assert resumed.param_groups[0]["lr"] == 3e-4
    assert resumed.param_groups[0]["betas"] == (0.9, 0.95)
    for name, tensor in slots.named_tensors(module).items():
        assert torch.equal(tensor, slots.named_tensors(other)[name]), name
    for ours, theirs in zip(step_on(other, resumed), step_on(module, optimizer), strict=True):
        assert torch.equal(ours, theirs)


def test_the_stock_reader_of_torch_reads_a_member(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    module, optimizer = trained(2)
    path = CheckpointStore(tmp_path).save(2, full_state(module, optimizer))
    expected = slots.named_tensors(module)
    read = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(read, checkpoint_id=str(path / "student-model"))
    assert all(torch.equal(read[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("num_threads", [1, 3])
def test_big_members_are_dealt_into_files_and_come_back_equal(
    tmp_path: Path, num_threads: int
) -> None:
    torch.manual_seed(0)
    tensors = {f"t{index}": torch.randn(5, 1 << 20) for index in range(5)}
    tensors |= {"empty": torch.zeros(0, 4), "scalar": torch.tensor(2.5), "int": torch.arange(9)}
    store = CheckpointStore(tmp_path, num_threads=num_threads)
    state = CheckpointState(roles={"student": RoleState(model=tensors)}, facts=FACTS)
    path = store.save(1, state)
    assert len(list((path / "student-model").glob("*.distcp"))) == num_threads
    store.verify(path)
    read = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    store.load_into(path, {"student": RoleState(model=read)})
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_live_and_ema_weights_are_kept_apart(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    path = store.save(1, tiny(1.0))
    target = torch.zeros(3)
    store.load_into(path, {"student": RoleState(ema={"w": target})})
    assert target.tolist() == [2.0, 2.0, 2.0]
    record = store.load_into(path, {"student": RoleState(model={"w": target})})
    assert target.tolist() == [1.0, 1.0, 1.0]
    assert record.facts.trainer == {"ema_updates": 3}


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (RoleState(ema={"w": torch.zeros(3)}), "checkpoint.ema-missing"),
        (RoleState(optimizer={"w/exp_avg": torch.zeros(3)}), "checkpoint.mismatch"),
        (RoleState(model={"v": torch.zeros(3)}), "checkpoint.mismatch"),
        (RoleState(model={"w": torch.zeros(3), "v": torch.zeros(3)}), "checkpoint.mismatch"),
        (RoleState(model={"w": torch.zeros(4)}), "checkpoint.mismatch"),
        (RoleState(model={"w": torch.zeros(3, dtype=torch.float64)}), "checkpoint.mismatch"),
    ],
)
def test_what_does_not_fit_is_refused_with_code_3(
    tmp_path: Path, target: RoleState, code: str
) -> None:
    store = CheckpointStore(tmp_path)
    path = store.save(1, tiny(1.0, ema=False))
    with pytest.raises(SolarError) as told:
        store.load_into(path, {"student": target})
    assert (told.value.code, told.value.exit_code) == (code, 3)


def test_a_target_in_another_dtype_is_filled_when_allowed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    path = store.save(1, tiny(1.5))
    target = torch.zeros(3, dtype=torch.bfloat16)
    store.load_into(path, {"student": RoleState(model={"w": target})}, cast_dtypes=True)
    assert target.tolist() == [1.5, 1.5, 1.5]


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, tiny(1.0))
    with pytest.raises(SolarError) as told:
        store.save(1, tiny(2.0))
    assert told.value.code == "checkpoint.exists"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_model_000001"]


def test_the_newest_is_the_one_saved_last_not_the_highest_step(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_last=1)
    for step in (400, 5000):
        CheckpointStore(tmp_path).save(step, tiny(float(step)))
    store.save(410, tiny(410.0))
    assert store.latest() == tmp_path / "checkpoint_model_000410"
    assert [entry.step for entry in store.list()] == [410]


def test_retention_keeps_what_it_is_told_to_keep(tmp_path: Path) -> None:
    (tmp_path / "notes-step-10").mkdir()
    (tmp_path / "checkpoint_model_12").mkdir()
    source = CheckpointStore(tmp_path).save(1, tiny(1.0))
    removed: list[object] = []
    store = CheckpointStore(
        tmp_path,
        keep_last=2,
        keep_every=4,
        protected=[source],
        notice=lambda event, fields: removed.append((event, fields["step"])),
    )
    for step in range(2, 10):
        store.save(step, tiny(float(step)))
    assert [entry.step for entry in store.list()] == [1, 4, 8, 9]
    assert removed == [("checkpoint_removed", step) for step in (2, 3, 5, 6, 7)]
    assert (tmp_path / "notes-step-10").is_dir()
    assert (tmp_path / "checkpoint_model_12").is_dir()


def test_without_limits_everything_is_kept(tmp_path: Path) -> None:
    for keep_every in (0, 2):
        store = CheckpointStore(tmp_path, keep_last=0, keep_every=keep_every)
        for step in range(3):
            store.save(10 * keep_every + step, tiny(1.0))
    assert len(store.list()) == 6


def test_checkpoints_of_another_run_are_neither_newest_nor_removed(tmp_path: Path) -> None:
    other = CheckpointStore(tmp_path / "other", run_id="other").save(9, tiny(9.0))
    root = tmp_path / "run"
    store = CheckpointStore(root, keep_last=1, run_id="mine")
    store.save(1, tiny(1.0))
    shutil.copytree(other, root / other.name)
    store.save(2, tiny(2.0))
    assert store.latest() == root / "checkpoint_model_000002"
    assert [entry.step for entry in store.listing().foreign] == [9]
    assert (root / other.name).is_dir()


def test_a_partial_directory_is_reported_and_left_alone(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    good = store.save(1, tiny(1.0))
    partial = tmp_path / "checkpoint_model_000002"
    shutil.copytree(good, partial)
    (partial / "COMPLETE.json").unlink()
    missing = store.save(3, tiny(3.0))
    next((missing / "student-model").glob("*.distcp")).unlink()
    leftover = tmp_path / f".checkpoint_model_000004.{'0' * 32}.partial"
    leftover.mkdir()
    listing = store.listing()
    assert listing.newest is not None
    assert listing.newest.path == good
    assert {item.path: item.fault.code for item in listing.partial} == {
        partial: "checkpoint.incomplete",
        missing: "checkpoint.damaged",
    }
    assert find(tmp_path) == good
    assert store.clear_leftovers() == (leftover,)
    assert partial.is_dir()
    with pytest.raises(SolarError) as told:
        store.load_into(partial, tiny(0.0).roles)
    assert (told.value.code, told.value.exit_code) == ("checkpoint.incomplete", 3)


def test_an_unusable_checkpoint_in_the_way_of_a_save_is_set_aside_and_told(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    store = CheckpointStore(tmp_path, notice=lambda event, fields: told.append((event, {**fields})))
    for number in (1, 2):
        path = store.save(3, tiny(float(number)))
        (path / "COMPLETE.json").unlink()
        saved = store.save(3, tiny(0.0))
        aside = tmp_path / f"checkpoint_model_000003.unusable-{number}"
        assert aside.is_dir()
        assert told[-1] == ("checkpoint_set_aside", {"path": str(saved), "now": str(aside)})
        store.verify(saved)
        (saved / "state.json").unlink()
        if number == 1:
            os.rename(saved, tmp_path / "elsewhere")


def test_a_checkpoint_moved_elsewhere_and_read_only_verifies_and_loads(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path / "run").save(1, tiny(4.0))
    moved = tmp_path / "elsewhere" / "my copy"
    moved.parent.mkdir()
    os.rename(path, moved)
    for place in [moved, *moved.rglob("*")]:
        place.chmod(0o555 if place.is_dir() else 0o444)
    store = CheckpointStore(tmp_path / "another")
    store.verify(moved)
    target = tiny(0.0)
    assert store.load_into(moved, target.roles).step == 1
    assert target.roles["student"].model["w"].tolist() == [4.0] * 3  # type: ignore[index]
    assert not (tmp_path / "another").exists()


def test_a_run_without_checkpoints_says_so(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path).latest() is None
    assert scan(tmp_path / "none").complete == ()
    for place in (tmp_path, tmp_path / "none" / "checkpoint_model_000001"):
        with pytest.raises(SolarError) as told:
            CheckpointStore(tmp_path).verify(find(place))
        assert (told.value.code, told.value.exit_code) == ("checkpoint.missing", 3)


def test_wrapper_segments_are_not_part_of_a_name() -> None:
    for name in ("_orig_mod.a.weight", "module._checkpoint_wrapped_module.a.weight", "a.weight"):
        assert slots.clean_name(name) == "a.weight"
