"""Rank maps: which data-parallel and which sequence-parallel place a process has."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from solarwm.config.topology import shard_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPlace:
    """Place of one process: sequence-parallel groups are contiguous ranks."""

    dp_rank: int
    dp_world: int
    sp_rank: int
    sp_size: int


def place_of(world_rank: int, *, world_size: int, sp_size: int) -> MeshPlace:
    """dp_rank = world_rank // sp_size and sp_rank = world_rank % sp_size."""
    return MeshPlace(
        dp_rank=world_rank // sp_size,
        dp_world=world_size // sp_size,
        sp_rank=world_rank % sp_size,
        sp_size=sp_size,
    )


def shard_mesh(
    strategy: str, *, device_type: str, world_size: int, local_world_size: int
) -> DeviceMesh:
    """The mesh that parameters are sharded over, with the axes of `shard_axes`. Collective over all
    ranks."""
    axes = shard_axes(strategy, world_size=world_size, local_world_size=local_world_size)
    return init_device_mesh(device_type, tuple(axes.values()), mesh_dim_names=tuple(axes))
