"""What a checkpoint holds: tensors by role and part, and the facts of the run in `state.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from solarwm.checkpoints.manifest import Manifest, MemberEntry, Record, TensorEntry
from solarwm.errors.types import SolarError

PARTS = ("model", "optimizer", "ema")
_MAX_NAMED = 5


class Facts(Record):
    """What the engine must know to go on, beside the tensors.

    `occurrences` counts the samples consumed so far. `contract` holds what a resume compares for
    equality, `config` the whole resolved config, `trainer` whatever the stage keeps (EMA update
    counts, running means). `optimizers` maps a role to its groups (`optimizer.describe_groups`).
    """

    occurrences: int = Field(ge=0)
    route: str
    resolved_digest: str
    source_digest: str | None = None
    numerics: Literal["published", "corrected"]
    topology: dict[str, Any]
    versions: dict[str, Any]
    contract: dict[str, Any]
    config: dict[str, Any]
    trainer: dict[str, Any] = Field(default_factory=dict)
    optimizers: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)


class StateRecord(Record):
    """`state.json` of a checkpoint."""

    schema_: Literal["solarwm.checkpoint-state.v1"] = Field(
        alias="schema", default="solarwm.checkpoint-state.v1"
    )
    step: int = Field(ge=0)
    run_id: str
    save_index: int = Field(ge=1)
    world_size: int = Field(ge=1)
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleState:
    """The tensors of one role, each part a flat mapping; None leaves the part out.

    Model and EMA by parameter name, optimizer by `<parameter name>/<slot>`. On save they are read,
    on load they are filled in place. Plain tensors must be equal on all ranks; sharded ones are
    DTensors.
    """

    model: Mapping[str, Tensor] | None = None
    optimizer: Mapping[str, Tensor] | None = None
    ema: Mapping[str, Tensor] | None = None

    def parts(self) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
        """The parts that are there, in a fixed order."""
        for part in PARTS:
            tensors: Mapping[str, Tensor] | None = getattr(self, part)
            if tensors is not None:
                yield part, tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """All that a save writes: roles (`student`, `teacher`, `critic`), facts, this rank's own
    record.

    `rank_record` is plain JSON of this rank (RNG state of libraries, `rng.capture`); None writes
    none.
    """

    roles: Mapping[str, RoleState]
    facts: Facts
    rank_record: Mapping[str, Any] | None = field(default=None)

    def members(self) -> dict[str, Mapping[str, Tensor]]:
        """Member name (`student-model`) to its tensors, in a fixed order."""
        return members_of(self.roles)


def members_of(roles: Mapping[str, RoleState]) -> dict[str, Mapping[str, Tensor]]:
    """Member name (`<role>-<part>`) to tensors, sorted by role, parts in a fixed order."""
    return {
        f"{role}-{part}": tensors for role in sorted(roles) for part, tensors in roles[role].parts()
    }


def describe_tensors(tensors: Mapping[str, Tensor]) -> list[TensorEntry]:
    """Name, whole shape and dtype of each tensor, sorted by name."""
    return [
        TensorEntry(name=name, shape=list(tensors[name].shape), dtype=dtype_name(tensors[name]))
        for name in sorted(tensors)
    ]


def dtype_name(tensor: Tensor) -> str:
    """`float32` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def require_fit(
    place: str, manifest: Manifest, members: Mapping[str, Mapping[str, Tensor]], *, cast: bool
) -> None:
    """Raise unless the checkpoint holds exactly the tensors of each of `members` (exit 3).

    `checkpoint.ema-missing` when EMA is wanted and absent; `checkpoint.mismatch` for a missing
    member, missing or surplus names, other shapes, and, unless `cast`, other dtypes.
    """
    for name, tensors in members.items():
        stored = manifest.member(name)
        if stored is None:
            raise _member_missing(place, name, manifest)
        _require_equal(place, stored, tensors, cast)


def _member_missing(place: str, name: str, manifest: Manifest) -> SolarError:
    role, _, part = name.partition("-")
    held = ", ".join(manifest.required_components) or "nothing"
    if part == "ema":
        return SolarError(
            "checkpoint.ema-missing",
            f"the checkpoint has no EMA weights of the {role}",
            where=place,
            why=f"EMA is expected, and the checkpoint of step {manifest.step} holds: {held}.",
            fixes=["Load the live weights (weights: live).", "Choose one saved after EMA started."],
        )
    return SolarError(
        "checkpoint.mismatch",
        f"the checkpoint has no {part} of the {role}",
        where=place,
        why=f"It holds: {held}.",
        context={"member": name},
    )


def _require_equal(
    place: str, stored: MemberEntry, tensors: Mapping[str, Tensor], cast: bool
) -> None:
    entries = {entry.name: entry for entry in stored.tensors}
    missing = sorted(set(tensors) - set(entries))
    surplus = sorted(set(entries) - set(tensors))
    if missing or surplus:
        raise _mismatch(
            place,
            f"names of {stored.name} differ",
            f"missing in the checkpoint: {_some(missing)}; not in the model: {_some(surplus)}",
        )
    shapes = [
        f"{name} {entry.shape} (model {list(tensors[name].shape)})"
        for name, entry in entries.items()
        if entry.shape != list(tensors[name].shape)
    ]
    if shapes:
        raise _mismatch(place, f"shapes of {stored.name} differ", _some(shapes))
    dtypes = [
        f"{name} {entry.dtype} (model {dtype_name(tensors[name])})"
        for name, entry in entries.items()
        if entry.dtype != dtype_name(tensors[name])
    ]
    if dtypes and not cast:
        raise _mismatch(place, f"dtypes of {stored.name} differ", _some(dtypes))


def _mismatch(place: str, headline: str, why: str) -> SolarError:
    return SolarError(
        "checkpoint.mismatch",
        headline,
        where=place,
        why=why,
        fixes=["Use the config the checkpoint was made with (its resolved-config.json)."],
    )


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
