"""A small world packed again into more shards than it has."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path


def resharded(world: Path, target: Path, *, per_shard: int) -> list[str]:
    """Write the training samples of `world` below `target`, `per_shard` to a shard, in index order;
    gives the shard names."""
    lines = gzip.decompress((world / "train-index.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    names = []
    for first in range(0, len(rows), per_shard):
        name = f"shards/part-{first // per_shard:04d}.tar"
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        group = rows[first : first + per_shard]
        with tarfile.open(path, "w") as archive:
            for row in group:
                _copy(world / row["shard"], row["key"], archive)
        for row in group:
            for field in ("shard_digest", "shard_md5_b64", "shard_generation"):
                row.pop(field, None)
            row |= {"shard": name, "shard_size": path.stat().st_size}
        names.append(name)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (target / "train-index.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (target / "test-index.jsonl.gz").write_bytes((world / "test-index.jsonl.gz").read_bytes())
    return names


def _copy(shard: Path, key: str, archive: tarfile.TarFile) -> None:
    with tarfile.open(shard) as source:
        for info in source:
            if info.name.split(".", 1)[0] == key:
                stream = source.extractfile(info)
                assert stream is not None
                archive.addfile(info, io.BytesIO(stream.read()))
