"""Saving a stage with all its roles and taking it up again, bit for bit."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from solarwm import __version__
from solarwm.checkpoints import optimizer as slots
from solarwm.checkpoints import rng
from solarwm.checkpoints.background import BackgroundSaver, FinishedSave
from solarwm.checkpoints.manifest import read_manifest
from solarwm.checkpoints.state import CheckpointState, Facts, RoleState
from solarwm.checkpoints.store import CheckpointStore
from solarwm.distributed.group import RankGroup
from solarwm.storage.space import require_free
from solarwm.training import health
from solarwm.training.copying import CheckpointCopies, Copied
from solarwm.training.loop import Session
from solarwm.training.resuming import ELASTIC, mismatch
from solarwm.training.stage import Role, Stage

LATER = frozenset({"teacher"})
"""What checkpoints of earlier versions do not record."""


def contract_of(
    resolved: Any, *, data_fingerprint: str, data_topology: str = "", teacher: str = ""
) -> dict[str, Any]:
    """What a resume must not change: the route, the model, the data, the numerics, the weights of a
    frozen teacher, and with the published order how ranks and workers share the data."""
    config = resolved.config
    dims = resolved.route.spec.profiles[config.model.profile].dims
    return {
        "route": resolved.route.key,
        "profile": config.model.profile,
        "dim": dims.dim,
        "num_layers": dims.num_layers,
        "camera_translation_transform": config.model.camera_translation_transform,
        "camera_intrinsics_mode": config.model.camera_intrinsics_mode,
        "numerics": numerics_of(config),
        "parameterization": "full-parameter",
        "data": data_fingerprint,
        **({"data_topology": data_topology} if data_topology else {}),
        **({"teacher": teacher} if teacher else {}),
    }


def numerics_of(config: Any) -> str:
    """The numerics of a training run: `corrected` unless the config says `published`."""
    return "published" if config.model.numerics == "published" else "corrected"


class StageSaver:
    """Saves one stage into the run's store. Every method is collective over all ranks."""

    def __init__(
        self,
        stage: Stage,
        store: CheckpointStore,
        *,
        resolved: Any,
        group: RankGroup,
        contract: Mapping[str, Any],
        session: Session,
    ) -> None:
        self._stage = stage
        self._store = store
        self._resolved = resolved
        self._group = group
        self._contract = dict(contract)
        self._session = session
        section = resolved.config.checkpoint
        self._when_busy = section.when_busy
        beside = section.async_save == "always" or (
            section.async_save == "auto" and group.device.type != "cpu"
        )
        self._background = BackgroundSaver(store) if beside else None
        self._copies: CheckpointCopies | None = None
        if section.copy_to is not None and group.world_rank == 0:
            self._copies = CheckpointCopies(
                section.copy_to, keep_last=section.keep_last, keep_every=section.keep_every
            )

    def require_room(self) -> None:
        """Refuse (`disk.full`, exit 5) to begin where not even one checkpoint fits. Rank 0 looks."""
        if self._group.world_rank:
            return
        size = sum(_bytes_of(role) for role in self._stage.roles)
        require_free(self._store.run_root, size)

    def save(self, step: int, *, cursor: int) -> None:
        """Write the checkpoint after `step` steps, having consumed `cursor` occurrences.

        Beside training when the config asks for it: then it is complete when a later `poll` or
        `finish` says so. Raises `train.non-finite` (exit 7) rather than write weights that are not
        finite.
        """
        started = time.perf_counter()
        with self._session.phase("save"):
            parameters = [p for role in self._stage.roles for p in role.parameters]
            health.check_weights(self._group, parameters, step=step)
            if self._background is None:
                path = self._store.save(step, self._state(cursor))
                self._tell(step, path, save_time_s=time.perf_counter() - started)
            elif self._may_begin(step):
                self._background.save(step, self._state(cursor))

    def poll(self) -> None:
        """Tell the saves that were completed beside training; raise what one failed with."""
        for saved in self._background.poll() if self._background is not None else ():
            self._tell_background(saved)
        for copied in self._copies.poll() if self._copies is not None else ():
            self._tell_copied(copied)

    def finish(self) -> None:
        """Wait until every save is complete."""
        with self._session.phase("save"):
            for saved in self._background.finish() if self._background is not None else ():
                self._tell_background(saved)
            for copied in self._copies.finish() if self._copies is not None else ():
                self._tell_copied(copied)

    def _may_begin(self, step: int) -> bool:
        """Whether to save now; with `when_busy: skip` the ranks agree. Collective over all ranks."""
        if self._when_busy == "wait" or self._background is None:
            return True
        busy = torch.tensor([float(self._background.busy)])
        self._group.collectives.sum_(busy, label=f"step {step} save busy")
        if not busy.item():
            return True
        self._session.emit(
            "checkpoint_skipped",
            schema="solarwm.training-event.v1",
            step=step,
            reason="an earlier save is still being written",
        )
        return False

    def _tell_background(self, saved: FinishedSave) -> None:
        self._tell(
            saved.step,
            saved.path,
            save_time_s=saved.stall_s + saved.write_s,
            stall_s=saved.stall_s,
            write_s=saved.write_s,
        )

    def _tell(self, step: int, path: Path, **times: float) -> None:
        self._session.note_outcome(last_checkpoint_step=step)
        self._session.emit(
            "checkpoint",
            schema="solarwm.training-event.v1",
            step=step,
            checkpoint_id=path.name,
            **times,
        )
        if self._copies is not None:
            self._copies.start(step, path)

    def _tell_copied(self, copied: Copied) -> None:
        self._session.emit(
            "checkpoint_copied",
            schema="solarwm.training-event.v1",
            step=copied.step,
            address=copied.address,
            copy_time_s=copied.seconds,
        )

    def load(self, path: Path) -> tuple[int, int]:
        """Fill the stage from the checkpoint at `path`; gives (steps completed, occurrences
        consumed).

        Raises `train.resume-mismatch` or `checkpoint.*` (exit 3).
        """
        record = self._store.record(path)
        self._require_contract(path, record.facts.contract)
        trainer = record.facts.trainer
        self._stage.memory = {key: float(v) for key, v in trainer.get("memory", {}).items()}
        states = {}
        for role in self._stage.roles:
            role.updates_skipped = int(trainer.get("updates_skipped", {}).get(role.name, 0))
            if role.ema is not None:
                role.ema.num_updates = int(trainer["ema_updates"])
            states[role.name] = _empty_state(path, role)
        self._store.load_into(path, states)
        for role in self._stage.roles:
            names = slots.named_parameters(role.module)
            groups = record.facts.optimizers[role.name]
            slots.restore_groups(role.optimizer, names, groups, place=str(path))
        self._restore_random(path, record.world_size)
        return record.step, record.facts.occurrences

    def _state(self, cursor: int) -> CheckpointState:
        roles, resolved = self._stage.roles, self._resolved
        ema = self._stage.role.ema
        return CheckpointState(
            roles={role.name: _state_of(role) for role in roles},
            facts=Facts(
                occurrences=cursor,
                route=resolved.route.key,
                resolved_digest=resolved.resolved_digest,
                source_digest=resolved.source_digest,
                numerics="published" if self._contract["numerics"] == "published" else "corrected",
                topology=resolved.topology.plain(),
                versions={
                    "solarwm": __version__,
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                },
                contract=self._contract,
                config=resolved.canonical,
                trainer={
                    "ema_updates": ema.num_updates if ema is not None else 0,
                    "memory": self._stage.memory,
                    "updates_skipped": {role.name: role.updates_skipped for role in roles},
                },
                optimizers={
                    role.name: slots.describe_groups(
                        role.optimizer, slots.named_parameters(role.module)
                    )
                    for role in roles
                },
            ),
            rank_record=rng.capture(),
        )

    def _require_contract(self, path: Path, saved: Mapping[str, Any]) -> None:
        names = sorted((set(saved) | set(self._contract)) - (LATER - set(saved)))
        differ = [name for name in names if saved.get(name) != self._contract.get(name)]
        if differ:
            lines = [f"{n}: saved {saved.get(n)!r}, now {self._contract.get(n)!r}" for n in differ]
            elastic = (ELASTIC,) if "data_topology" in differ else ()
            raise mismatch(path, "; ".join(lines), differ, fixes=elastic)

    def _restore_random(self, path: Path, saved_world_size: int) -> None:
        if saved_world_size != self._group.world_size:
            return
        record = self._store.rank_record(path, self._group.world_rank)
        if record is not None:
            rng.restore(record, place=str(path))


def _state_of(role: Role) -> RoleState:
    """The tensors of a role as they stand."""
    names = slots.named_parameters(role.module)
    return RoleState(
        model=slots.named_tensors(role.module),
        optimizer=slots.optimizer_tensors(role.optimizer, names),
        ema=_average(role),
    )


def _empty_state(path: Path, role: Role) -> RoleState:
    """The tensors of a role to be filled from the checkpoint at `path`."""
    member = read_manifest(path).member(f"{role.name}-optimizer")
    if member is None:
        raise mismatch(path, f"it has no optimizer state of the {role.name}", [])
    names = slots.named_parameters(role.module)
    return RoleState(
        model=slots.named_tensors(role.module),
        optimizer=slots.allocate_state(role.optimizer, names, member, place=str(path)),
        ema=_average(role),
    )


def _average(role: Role) -> dict[str, torch.Tensor] | None:
    if role.ema is None or not role.ema.exists:
        return None
    return {slots.clean_name(name): tensor for name, tensor in role.ema.shadow.items()}


def _bytes_of(role: Role) -> int:
    """What a role takes in a checkpoint: weights, two moments, the average."""
    size = sum(p.numel() * p.element_size() for p in role.module.parameters())
    moments = 2 * sum(p.numel() * p.element_size() for p in role.parameters)
    shadow = role.ema.shadow.values() if role.ema is not None else ()
    return size + moments + sum(tensor.numel() * tensor.element_size() for tensor in shadow)
