"""The processes of one launch, joined: ranks, device, collectives, and a clean end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from solarwm.distributed.collectives import Collectives
from solarwm.distributed.devices import BACKENDS
from solarwm.distributed.environment import Launcher
from solarwm.distributed.mesh import MeshPlace, place_of
from solarwm.errors.types import SolarError


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """What a process knows of itself and its peers once the group stands."""

    launcher: Launcher
    device: torch.device
    place: MeshPlace
    collectives: Collectives

    @property
    def world_rank(self) -> int:
        """Place of this process among all, 0..world_size-1."""
        return self.launcher.world_rank

    @property
    def world_size(self) -> int:
        """Processes in this launch."""
        return self.launcher.world_size


@contextmanager
def open_group(
    launcher: Launcher,
    *,
    device: torch.device,
    sp_size: int,
    timeout_s: float,
    always: bool = False,
) -> Iterator[RankGroup]:
    """Join the process group and leave it again; a single process joins none unless `always`
    (sharding).

    A collective that waits longer than `timeout_s` fails. Raises `distributed.group-failed` (exit
    6) when the ranks do not find each other. After an error the group is left standing for the
    process exit to clear, since taking it down could wait for ranks that are gone. Collective over
    all ranks.
    """
    joined = launcher.world_size > 1 or always
    if joined:
        _join(launcher, device, timeout_s)
    collectives = Collectives(world_rank=launcher.world_rank, world_size=launcher.world_size)
    yield RankGroup(
        launcher=launcher,
        device=device,
        place=place_of(launcher.world_rank, world_size=launcher.world_size, sp_size=sp_size),
        collectives=collectives,
    )
    if joined:
        with suppress(SolarError):
            collectives.barrier(label="leave")
        dist.destroy_process_group()


def _join(launcher: Launcher, device: torch.device, timeout_s: float) -> None:
    if launcher.num_nodes == 1 and sys.platform == "linux" and Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    timeout = timedelta(seconds=timeout_s)
    backend = BACKENDS[device.type]
    try:
        if launcher.world_size == 1:
            dist.init_process_group(
                backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout
            )
        else:
            dist.init_process_group(
                backend,
                rank=launcher.world_rank,
                world_size=launcher.world_size,
                timeout=timeout,
                device_id=device if device.type not in ("cpu", "mps") else None,
            )
    except (RuntimeError, ValueError) as cause:
        raise SolarError(
            "distributed.group-failed",
            "the ranks did not find each other",
            why=str(cause).splitlines()[0][:300],
            fixes=["check MASTER_ADDR and MASTER_PORT, and that every node started its processes"],
        ) from cause
