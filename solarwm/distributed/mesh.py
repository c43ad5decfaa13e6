"""Rank maps: which data-parallel and which sequence-parallel place a process has."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


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
    *, device_type: str, world_size: int, local_world_size: int, hybrid: bool
) -> DeviceMesh:
    """The mesh that parameters are sharded over. Collective over all ranks.

    Full sharding has one axis `shard` over all ranks. Hybrid sharding over several machines has the
    axes `replicate` (machines) and `shard` (processes of one machine); on one machine the two are
    the same thing.
    """
    num_nodes = world_size // local_world_size
    if hybrid and num_nodes > 1:
        shape, names = (num_nodes, local_world_size), ("replicate", "shard")
    else:
        shape, names = (world_size,), ("shard",)
    return init_device_mesh(device_type, shape, mesh_dim_names=names)
