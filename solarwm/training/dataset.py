"""The training data of a config, checked before anything is written or allocated. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from typing import Any

from solarwm.data.index import Index, read_index
from solarwm.data.order import IndexedOrder
from solarwm.data.plan import PlanSettings
from solarwm.data.published_walk import Cut, PublishedWalk
from solarwm.data.shards import ShardReader
from solarwm.data.transport.warming import shard_sizes
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json
from solarwm.training.latent_sets import require_records


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Index and order of a run, and where its shards lie."""

    index: Index
    order: IndexedOrder | PublishedWalk
    fingerprint: str
    """BLAKE2s over what fixes which frames each occurrence means: rows, seed, geometry."""
    topology: str = ""
    """How the published order is cut among ranks and workers, in words; empty for `indexed`."""


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


def open_training_data(config: Any, *, num_nodes: int = 1) -> TrainingData:
    """Read and check the training index of a config; `num_nodes` are the machines of the launch.

    Raises SolarError `index.*`, `shard.*`, `latent.*` and `data.*` (exit 3) for a bad index, a
    missing or wrong-sized shard (unless bad samples are skipped), a row whose clip does not fit, a
    reader without samples. Of shards in a store only their sizes are asked of the index.
    """
    data = config.data
    index = read_index(index_path(data, data.train_index))
    if data.transport.kind != "local":
        shard_sizes(index)
    elif data.on_bad_sample == "stop":
        _require_shards(index, Path(data.transport.root))
    if data.encoding == "preencoded":
        require_records(index, data)
    indexed = IndexedOrder.of(index, data.seed)
    for row in index.rows:
        indexed.start_frame(
            row.ordinal, row, data.pixel_frames, fps=data.fps, random_start=data.random_start
        )
    fingerprint = _fingerprint(index, data)
    if data.order == "indexed":
        return TrainingData(index=index, order=indexed, fingerprint=fingerprint)
    walk = _published(index, config, num_nodes)
    walk.require_every_reader()
    cut = walk.cut
    topology = (
        f"{cut.dp_world} data ranks on {num_nodes} machines, {cut.grad_accum} microbatches of "
        f"{cut.micro_batch_size}, {cut.num_workers} workers, {data.partition_mode}, "
        f"shuffle {data.shuffle_buffer}"
    )
    return TrainingData(index=index, order=walk, fingerprint=fingerprint, topology=topology)


def _published(index: Index, config: Any, num_nodes: int) -> PublishedWalk:
    data, train, distributed = config.data, config.train, config.distributed
    shared = distributed.sequence_parallel_size
    if (distributed.world_size // num_nodes) % shared:
        raise SolarError(
            "launcher.mismatch",
            f"groups of {shared} ranks that share a sample span machines",
            where="distributed.sequence_parallel_size",
            why=f"the published order gives every machine its own data; {distributed.world_size} "
            f"ranks on {num_nodes} machines",
            fixes=["--set data.order=indexed", "start whole groups on every machine"],
        )
    settings = PlanSettings(
        seed=data.seed,
        frames=data.pixel_frames,
        start="random" if data.random_start else "fixed",
        fps=data.fps,
        shuffle_buffer=data.shuffle_buffer,
        partition=data.partition_mode,
    )
    cut = Cut(
        dp_world=distributed.world_size // distributed.sequence_parallel_size,
        num_nodes=num_nodes,
        micro_batch_size=train.micro_batch_size,
        grad_accum=train.grad_accum,
        num_workers=data.num_workers,
    )
    return PublishedWalk(index, settings, cut)


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
