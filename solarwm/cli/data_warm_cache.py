"""`solarwm data warm-cache`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.data_options import IndexArgument, usage
from solarwm.cli.output import JsonOption, emit


def warm_cache(
    index: IndexArgument,
    root: Annotated[
        str, typer.Option("--root", help="gs://, s3://, http(s):// or hf:// address of the shards.")
    ],
    cache_dir: Annotated[
        Path, typer.Option("--cache-dir", help="data.transport.cache_dir of the run.")
    ],
    max_gib: Annotated[
        float, typer.Option("--max-gib", help="Size of the cache; all shards must fit.")
    ],
    workers: Annotated[int, typer.Option("--workers", min=1, help="Shards fetched at a time.")] = 4,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout-seconds", help="Longest time for one shard.")
    ] = 7200.0,
    json: JsonOption = False,
) -> None:
    """Fetch the shards of an index into the cache of a later run."""
    from solarwm.data.index import read_index
    from solarwm.data.transport.choice import GIB, open_cache
    from solarwm.data.transport.stores import Patience
    from solarwm.data.transport.warming import shard_sizes, warm

    if "://" not in root:
        raise usage("--root must be the address of a store", f"it is {root!r}")
    for name, value in (("--max-gib", max_gib), ("--timeout-seconds", timeout_seconds)):
        if not value > 0:
            raise usage(f"{name} must be above 0", f"it is {value:g}")
    rows = read_index(index)
    sizes = shard_sizes(rows)
    patience = Patience(total_s=timeout_seconds)
    cache = open_cache(root, cache_dir, max_gib, index=rows, patience=patience)
    done = warm(cache, sizes, max_bytes=int(max_gib * GIB), workers=workers)
    value = {
        "schema": "solarwm.warm-cache.v1",
        "cache_dir": str(cache_dir.resolve()),
        "retries": cache.store.num_retries,
        **asdict(done),
    }
    emit(value, json=json, text=_lines)


def _lines(value: dict[str, Any]) -> list[str]:
    return [
        f"{value['shards']} shards, {value['bytes'] / 2**20:,.1f} MiB in {value['cache_dir']}: "
        f"{value['fetched']} fetched in {value['elapsed_s']:.1f} s, {value['retries']} reads tried again"
    ]
