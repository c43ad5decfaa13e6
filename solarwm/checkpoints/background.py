"""Saving beside training: the state is copied, then written by a thread while the steps go on."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from solarwm.checkpoints.state import CheckpointState, RoleState
from solarwm.checkpoints.store import CheckpointStore

_NICENESS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSave:
    """A checkpoint that is complete on disk."""

    step: int
    path: Path
    stall_s: float
    """Seconds training waited: for an earlier save, and for the copy."""
    write_s: float
    """Seconds the writing took beside it."""


class Staging:
    """Host copies of tensors, kept from save to save; pinned where the source is on an accelerator."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copy(self, state: CheckpointState) -> CheckpointState:
        """The same state over the copies. Overwrites what an earlier call gave; sharded tensors stay
        sharded, each rank copying its own shard. No collective."""
        roles: dict[str, RoleState] = {}
        devices: set[torch.device] = set()
        for role, parts in state.roles.items():
            copies = {
                part: {
                    name: self._copied(f"{role}/{part}/{name}", tensor, devices)
                    for name, tensor in tensors.items()
                }
                for part, tensors in parts.parts()
            }
            roles[role] = RoleState(**copies)
        for device in devices:
            torch.accelerator.synchronize(device)
        return CheckpointState(roles=roles, facts=state.facts, rank_record=state.rank_record)

    @property
    def num_bytes(self) -> int:
        """Host memory held."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self._buffers.values())

    def _copied(self, key: str, tensor: Tensor, devices: set[torch.device]) -> Tensor:
        source = tensor.detach()
        local = source.to_local() if isinstance(source, DTensor) else source
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape != local.shape or buffer.dtype != local.dtype:
            pinned = local.device.type not in ("cpu", "meta")
            buffer = torch.empty(local.shape, dtype=local.dtype, pin_memory=pinned)
            self._buffers[key] = buffer
        if local.device.type != "cpu":
            devices.add(local.device)
        buffer.copy_(local, non_blocking=True)
        if isinstance(source, DTensor):
            return DTensor(buffer, source._spec, requires_grad=False)  # type: ignore[call-arg]
        return buffer


class BackgroundSaver:
    """One save at a time in a thread of its own, over a process group of its own.

    Made by all ranks together (it opens the group). A save that failed raises on every rank at the
    next `poll`, `save` or `finish`: `disk.*` on the rank it hit, `checkpoint.peer-failed` elsewhere.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._group: dist.ProcessGroup | None = None
        if dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo")  # type: ignore[assignment]
        self._staging = Staging()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._done: list[FinishedSave] = []

    @property
    def busy(self) -> bool:
        """Whether a save is being written."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, step: int, state: CheckpointState) -> None:
        """Wait for the save before, copy the state, begin to write it. A collective of all ranks."""
        started = time.perf_counter()
        self._join()
        copied = self._staging.copy(state)
        stall_s = time.perf_counter() - started
        self._thread = threading.Thread(
            target=self._write,
            args=(step, copied, stall_s),
            name=f"solarwm-save-{step}",
            daemon=True,
        )
        self._thread.start()

    def poll(self) -> list[FinishedSave]:
        """Saves that were completed since the last call; raises what one failed with."""
        self._raise()
        done, self._done = self._done, []
        return done

    def finish(self) -> list[FinishedSave]:
        """Wait for the save that is under way; then as `poll`."""
        self._join()
        return self.poll()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, step: int, state: CheckpointState, stall_s: float) -> None:
        started = time.perf_counter()
        _give_way()
        try:
            path = self._store.save(step, state, group=self._group)
        except BaseException as error:
            self._error = error
            return
        write_s = time.perf_counter() - started
        self._done.append(FinishedSave(step=step, path=path, stall_s=stall_s, write_s=write_s))


def _give_way() -> None:
    """Lower this thread's share of the processors where threads can have one of their own."""
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        except OSError:
            return
