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
from torch.distributed.distributed_c10d import _get_default_store

from solarwm.distributed.collectives import Collectives
from solarwm.distributed.devices import BACKENDS
from solarwm.distributed.environment import Launcher
from solarwm.distributed.mesh import MeshPlace, place_of
from solarwm.distributed.order import OrderCheck
from solarwm.distributed.sequence import SequenceGroup
from solarwm.errors.types import SolarError

FLIGHTS_KEPT = "2000"
"""Collectives that PyTorch's flight recorder keeps, where the backend has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """What a process knows of itself and its peers once the group stands."""

    launcher: Launcher
    device: torch.device
    place: MeshPlace
    collectives: Collectives
    sequence: SequenceGroup | None = None
    """The ranks that share this one's samples; None when it has them alone."""

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
    check_order: bool = False,
    check_peers_every: int = 1,
) -> Iterator[RankGroup]:
    """Join the process group and leave it again; a single process joins none unless `always`
    (sharding).

    A collective that waits longer than `timeout_s` fails. `check_order` compares every collective
    with the other ranks before it is made; `check_peers_every` is for `SequenceGroup`. Raises
    `distributed.group-failed` (exit 6) when the ranks do not find each other. After an error the
    group is left standing for the process exit to clear, since taking it down could wait for ranks
    that are gone. Collective over all ranks.
    """
    joined = launcher.world_size > 1 or always
    if joined:
        _join(launcher, device, timeout_s)
    collectives = Collectives(world_rank=launcher.world_rank, world_size=launcher.world_size)
    if check_order and launcher.world_size > 1:
        collectives.log.check = OrderCheck(
            _get_default_store(), world_rank=launcher.world_rank, timeout_s=timeout_s
        )
    sequence = None
    if sp_size > 1:
        peers = _sequence_peers(collectives, sp_size, timeout_s)
        sequence = SequenceGroup(peers, check_every=check_peers_every)
    yield RankGroup(
        launcher=launcher,
        device=device,
        place=place_of(launcher.world_rank, world_size=launcher.world_size, sp_size=sp_size),
        collectives=collectives,
        sequence=sequence,
    )
    if joined:
        with suppress(SolarError):
            collectives.barrier(label="leave")
        dist.destroy_process_group()


def _sequence_peers(collectives: Collectives, sp_size: int, timeout_s: float) -> Collectives:
    """One process group for every `sp_size` contiguous ranks; that of this rank."""
    own: Collectives | None = None
    for first in range(0, collectives.world_size, sp_size):
        members = tuple(range(first, first + sp_size))
        made = dist.new_group(list(members), timeout=timedelta(seconds=timeout_s))
        if collectives.world_rank in members:
            name = f"ranks {members[0]}-{members[-1]}"
            own = collectives.among(members, made, name=name)
    assert own is not None
    return own


def _own_store(launcher: Launcher, timeout: timedelta) -> dist.Store:
    """The launch's key-value store, in a namespace of its own: a launcher that restarts its group
    keeps the store, with the addresses of processes that are gone."""
    met = dist.rendezvous("env://", launcher.world_rank, launcher.world_size, timeout=timeout)
    store = next(iter(met))[0]
    store.set_timeout(timeout)
    return dist.PrefixStore(launcher.token, store)


def _join(launcher: Launcher, device: torch.device, timeout_s: float) -> None:
    if launcher.num_nodes == 1 and sys.platform == "linux" and Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    timeout = timedelta(seconds=timeout_s)
    backend = BACKENDS[device.type]
    if device.type == "cuda":
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", FLIGHTS_KEPT)
    try:
        if launcher.world_size == 1:
            dist.init_process_group(
                backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout
            )
        else:
            dist.init_process_group(
                backend,
                store=_own_store(launcher, timeout),
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
