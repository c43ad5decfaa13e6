"""The training data of a config, checked before anything is written or allocated. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from typing import Any

from solarwm.data.index import Index, read_index
from solarwm.data.order import IndexedOrder
from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json
from solarwm.training.latent_sets import require_records

TABLES = "shard-tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Index and order of a run, and where its shards lie."""

    index: Index
    order: IndexedOrder
    shard_root: Path
    fingerprint: str
    """BLAKE2s over what fixes which frames each occurrence means: rows, seed, geometry."""


def require_one_batch(data: TrainingData, global_batch_size: int) -> None:
    """Refuse (exit 3) data of which one epoch does not fill one global batch: a step would hold a
    sample twice."""
    found = data.order.num_occurrences_per_epoch
    if found >= global_batch_size:
        return
    raise SolarError(
        "data.too-few-samples",
        f"{found} samples do not fill one global batch of {global_batch_size}",
        where=str(data.index.path),
        why=f"{len(data.index.rows)} rows with their epoch_repeats give {found} samples an epoch",
        fixes=[
            "give an index with more rows, or raise epoch_repeats in its rows",
            f"lower train.global_batch_size to {found} or less, and the ranks or accumulation with it",
        ],
        context={"samples": found, "global_batch_size": global_batch_size},
    )


def index_path(data: Any, key: str) -> Path:
    """The index file `key` of a config's data section: below `index_root`, else below the transport
    root."""
    return Path(data.index_root or data.transport.root) / key


def open_training_data(data: Any) -> TrainingData:
    """Read and check the training index of a config's `data` section.

    Raises `cli.not-available` (exit 2) for what this release does not train from, SolarError
    `index.*` and `shard.*` (exit 3) for a bad index, a missing or wrong-sized shard, a row whose
    clip does not fit.
    """
    _require_supported(data)
    index = read_index(index_path(data, data.train_index))
    order = IndexedOrder.of(index, data.seed)
    root = Path(data.transport.root)
    _require_shards(index, root)
    if data.encoding == "preencoded":
        require_records(index, data)
    for row in index.rows:
        order.start_frame(
            row.ordinal, row, data.pixel_frames, fps=data.fps, random_start=data.random_start
        )
    return TrainingData(
        index=index, order=order, shard_root=root, fingerprint=_fingerprint(index, data)
    )


def _require_supported(data: Any) -> None:
    if data.order != "indexed":
        raise SolarError(
            "cli.not-available",
            "training in the published data order is not in this release",
            where="data.order",
            why="the indexed order is a keyed permutation that no rank or worker count changes",
            fixes=["--set data.order=indexed"],
        )
    if data.transport.kind != "local":
        raise SolarError(
            "cli.not-available",
            "training straight from a bucket is not in this release",
            where="data.transport.kind",
            fixes=["--set data.transport.kind=local --set data.transport.root=/a/local/copy"],
        )


def _require_shards(index: Index, root: Path) -> None:
    reader = ShardReader(root)
    sizes = {row.shard: row.shard_size for row in index.rows}
    try:
        for shard, size in sizes.items():
            path = root / shard
            if (
                not path.is_file()
                or not path.stat().st_size
                or (size and path.stat().st_size != size)
            ):
                reader.members(shard, shard_size=size)
    finally:
        reader.close()


def _fingerprint(index: Index, data: Any) -> str:
    state = blake2s()
    for row in index.rows:
        facts = (row.sample_id, row.epoch_repeats, row.num_frames, row.fps, row.start_frame)
        state.update(repr(facts).encode())
    geometry = {
        "rows": state.hexdigest(),
        "seed": data.seed,
        "order": data.order,
        "frames": data.pixel_frames,
        "height": data.height,
        "width": data.width,
        "fps": data.fps,
        "random_start": data.random_start,
    }
    return blake2s_hex(canonical_json(geometry))
