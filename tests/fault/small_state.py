"""A small state whose tensors say which step they are of, and the oracle after every fault."""

from __future__ import annotations

from pathlib import Path

import torch

from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.storage.durable import is_private_name


def state_of(step: int, *, num_values: int = 24) -> CheckpointState:
    """A state all of whose values are `step`."""
    model = {name: torch.full((num_values,), float(step)) for name in ("a.weight", "b.weight")}
    slots = {f"{name}/exp_avg": tensor * 10 for name, tensor in model.items()}
    return CheckpointState(
        roles={
            "student": RoleState(model=model, optimizer=slots, ema={"a.weight": model["a.weight"]})
        },
        facts=Facts(
            occurrences=step * 4,
            route="family:stage",
            resolved_digest="0" * 64,
            numerics="corrected",
            topology={},
            versions={},
            contract={"family": "f"},
            config={},
        ),
        rank_record={"step": step},
    )


def loaded_step(store: CheckpointStore, path: Path, *, num_values: int = 24) -> int:
    """The step that every value loaded from `path` says it is of."""
    target = state_of(0, num_values=num_values)
    record = store.load_into(path, target.roles)
    for part, tensors in target.roles["student"].parts():
        for name, tensor in tensors.items():
            scale = 10 if part == "optimizer" else 1
            assert bool((tensor == record.step * scale).all()), f"{part} {name}"
    assert store.rank_record(path, 0) == {"step": record.step}
    assert record.facts.occurrences == record.step * 4
    return record.step


def check_after_fault(root: Path, *, allowed: set[int], num_values: int = 24) -> int:
    """The oracle of every fault: what a next start finds is whole, usable, and leaves nothing to clean.

    Gives the step that a resume takes up, which must be one of `allowed`.
    """
    store = CheckpointStore(root)
    listing = store.listing()
    assert not listing.partial, f"torn under a public name: {listing.partial}"
    assert len(listing.leftovers) <= 1
    for entry in listing.complete:
        store.verify(entry.path)
        assert loaded_step(store, entry.path, num_values=num_values) == entry.step
    assert listing.newest is not None, "the previous checkpoint is lost"
    step = listing.newest.step
    assert step in allowed
    store.clear_leftovers()
    assert not [path for path in root.iterdir() if is_private_name(path.name)]
    return step
