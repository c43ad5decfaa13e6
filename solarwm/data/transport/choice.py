"""From `data.transport` to the reader of its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from solarwm.data.index import Index
from solarwm.data.shards import DEFAULT_MAX_OPEN, ShardReader
from solarwm.data.transport.shard_cache import ShardCache
from solarwm.data.transport.stores import ObjectStore

GIB = 2**30


def open_cache(
    root: str, directory: Path, max_gib: float, *, index: Index | None = None
) -> ShardCache:
    """The disk cache of a store; with an index, its `shard_digest`s are checked at every fetch."""
    digests: dict[str, str] = {}
    for row in index.rows if index is not None else ():
        digest = row.extra.get("shard_digest")
        if isinstance(digest, str) and digest:
            digests[row.shard] = digest
    return ShardCache(ObjectStore(root), directory, max_bytes=int(max_gib * GIB), digests=digests)


def open_reader(
    transport: Any,
    *,
    index: Index | None = None,
    max_open: int = DEFAULT_MAX_OPEN,
    table_dir: Path | None = None,
) -> ShardReader:
    """The reader of the shards that a config's `data.transport` names. Fetches nothing yet."""
    if transport.kind == "local":
        return ShardReader(Path(transport.root), max_open=max_open, table_dir=table_dir)
    directory = Path(transport.cache_dir)
    cache = open_cache(transport.root, directory, transport.cache_max_gib, index=index)
    tables = table_dir or directory / ".shard-tables"
    return ShardReader(directory, max_open=max_open, table_dir=tables, fetch=cache.path)
