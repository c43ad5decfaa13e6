"""Filling the disk cache of a store before a run, from an index alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from solarwm.data.index import Index
from solarwm.data.transport.shard_cache import ShardCache
from solarwm.errors.types import SolarError


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """What warming left in the cache."""

    shards: int
    bytes: int
    fetched: int
    elapsed_s: float


def shard_sizes(index: Index) -> dict[str, int]:
    """Every shard of an index with its size, in the order of first use.

    Raises `index.bad-field` (exit 3) for a row without `shard_size`.
    """
    sizes: dict[str, int] = {}
    for row in index.rows:
        if row.shard_size is None:
            raise SolarError(
                "index.bad-field",
                "shards of a store need their size in the index",
                where=f"{index.path}: row {row.ordinal + 1}",
                why=f"the row of sample {row.sample_id!r} has no shard_size",
                fixes=["write shard_size (bytes of the tar) into every row"],
                context={"sample_id": row.sample_id, "field": "shard_size"},
            )
        sizes.setdefault(row.shard, row.shard_size)
    return sizes


def warm(
    cache: ShardCache,
    sizes: dict[str, int],
    *,
    max_bytes: int,
    workers: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Warmed:
    """Fetch every shard that the cache lacks, `workers` at a time.

    Refuses (`store.cache-too-small`) before the first read what cannot fit; raises the first fault
    of a fetch, what came before it stays in the cache.
    """
    started = time.monotonic()
    total = sum(sizes.values())
    if total > max_bytes:
        raise SolarError(
            "store.cache-too-small",
            "the shards of the index do not fit the cache",
            where=str(cache.directory),
            why=f"{len(sizes)} shards hold {total} bytes; the cache holds {max_bytes}",
            fixes=[f"--max-gib {total // 2**30 + 1}", "warm an index with fewer shards"],
        )
    with ThreadPoolExecutor(workers, "solarwm-warm") as pool:
        waiting = [pool.submit(cache.path, shard, size) for shard, size in sizes.items()]
        try:
            for done, future in enumerate(waiting, 1):
                future.result()
                tell(done, len(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Warmed(
        shards=len(sizes),
        bytes=total,
        fetched=cache.counts.fetched,
        elapsed_s=time.monotonic() - started,
    )
