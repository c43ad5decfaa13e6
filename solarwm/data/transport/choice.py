"""From `data.transport` to the reader of its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from solarwm.data.index import Index
from solarwm.data.rows import IDENTITY_FIELDS, Row
from solarwm.data.shards import DEFAULT_MAX_OPEN, ShardReader
from solarwm.data.transport.shard_cache import ShardCache
from solarwm.data.transport.stores import ObjectStore, Patience

GIB = 2**30
TABLES = ".shard-tables"


def open_cache(
    root: str,
    directory: Path,
    max_gib: float,
    *,
    index: Index | None = None,
    patience: Patience | None = None,
) -> ShardCache:
    """The disk cache of a store; with an index, its `shard_digest`s are checked at every fetch."""
    digests: dict[str, str] = {}
    for row in index.rows if index is not None else ():
        if row.extra.get("shard_digest"):
            digests[row.shard] = str(row.extra["shard_digest"])
    return ShardCache(
        ObjectStore(root, patience=patience),
        directory,
        max_bytes=int(max_gib * GIB),
        digests=digests,
    )


def open_reader(
    data: Any,
    *,
    index: Index | None = None,
    cache_dir: str | None = None,
    cache_max_gib: float | None = None,
    local_tables: Path | None = None,
) -> ShardReader:
    """The reader of the shards that a config's data section names. Reads nothing yet.

    A cache given here stands in for that of `data.transport`. `local_tables` is a directory that
    keeps the offset tables of local shards, so that the next start scans none; those of a store are
    kept in its cache.
    """
    transport = data.transport
    max_open = getattr(data, "tar_cache_size", DEFAULT_MAX_OPEN)
    if transport.kind == "local":
        return ShardReader(Path(transport.root), max_open=max_open, table_dir=local_tables)
    directory = Path(cache_dir or transport.cache_dir)
    max_gib = cache_max_gib or transport.cache_max_gib
    cache = open_cache(transport.root, directory, max_gib, index=index)
    facts = {row.shard: _identity(row) for row in index.rows} if index is not None else {}
    return ShardReader(
        directory,
        max_open=max_open,
        table_dir=directory / TABLES,
        fetch=cache.path,
        prefetch=cache.prefetch,
        origin=lambda shard: f"{cache.store.uri(shard)} {facts.get(shard, '')}",
    )


def _identity(row: Row) -> str:
    parts = (row.shard_size, *(row.extra.get(name) for name in IDENTITY_FIELDS))
    return " ".join(str(part) for part in parts)
