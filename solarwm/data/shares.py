"""How many samples of an epoch each reader of a topology takes, counted without making a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solarwm.data.index import Index
from solarwm.data.plan import PlanSettings, Reader, owned_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One reader and its samples of the epoch."""

    dp_rank: int
    worker: int
    node: int
    samples: int


def reader_shares(
    index: Index,
    settings: PlanSettings,
    *,
    world_size: int,
    local_world_size: int,
    sequence_parallel_size: int = 1,
    num_workers: int = 1,
    epoch: int = 0,
) -> list[Share]:
    """The share of every (data-parallel rank, worker) under the published order.

    Sequence-parallel peers are one reader. A share of 0 means that this reader would stop the run.
    """
    num_nodes = world_size // local_world_size
    by_node = settings.partition == "node_shard"
    totals: Mapping[int, int] = owned_counts(index, settings, num_nodes, epoch) if by_node else {}
    shares: list[Share] = []
    for world_rank in range(0, world_size, sequence_parallel_size):
        for worker in range(num_workers):
            reader = Reader.of_launch(
                world_rank=world_rank,
                world_size=world_size,
                local_rank=world_rank % local_world_size,
                local_world_size=local_world_size,
                sequence_parallel_size=sequence_parallel_size,
                worker=worker,
                num_workers=num_workers,
            )
            which, of = reader.local_place if by_node else reader.place
            total = totals.get(reader.node, 0) if by_node else index.num_occurrences
            shares.append(
                Share(
                    dp_rank=reader.dp_rank,
                    worker=worker,
                    node=reader.node,
                    samples=len(range(which, total, of)),
                )
            )
    return shares


def summary(shares: list[Share]) -> dict[str, Any]:
    """Readers, the fewest and most samples of one, and `[dp_rank, worker]` of those with none."""
    counts = [share.samples for share in shares]
    return {
        "readers": len(shares),
        "samples": sum(counts),
        "fewest": min(counts),
        "most": max(counts),
        "empty": [[share.dp_rank, share.worker] for share in shares if not share.samples],
    }
