"""`solarwm data plan`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.data_options import IndexArgument, one_of, usage
from solarwm.cli.output import JsonOption, columns, emit

if TYPE_CHECKING:
    from solarwm.data.index import Index
    from solarwm.data.plan import SamplePlan


def plan(
    index: IndexArgument,
    seed: Annotated[int, typer.Option("--seed", help="data.seed of the run.")],
    pixel_frames: Annotated[int, typer.Option("--pixel-frames", help="Frames of a clip.")],
    order: Annotated[
        str, typer.Option("--order", help="published (bound to its topology) or indexed.")
    ] = "published",
    rank: Annotated[int, typer.Option("--rank", help="World rank.")] = 0,
    world_size: Annotated[int, typer.Option("--world-size", help="Ranks of the job.")] = 1,
    local_world_size: Annotated[
        int, typer.Option("--local-world-size", help="Ranks of a node; 0 = all on one node.")
    ] = 0,
    sequence_parallel_size: Annotated[
        int, typer.Option("--sequence-parallel-size", help="Ranks that share one sample.")
    ] = 1,
    worker_id: Annotated[int, typer.Option("--worker-id", help="Loader worker.")] = 0,
    num_workers: Annotated[int, typer.Option("--num-workers", help="Loader workers.")] = 1,
    epoch: Annotated[int, typer.Option("--epoch", help="Epoch to show.")] = 0,
    limit: Annotated[int, typer.Option("--limit", help="Plans to print.")] = 16,
    shuffle_buffer: Annotated[int, typer.Option("--shuffle-buffer", help="Published.")] = 4096,
    start: Annotated[
        str, typer.Option("--start", help="random, fixed (start_frame of the row) or first.")
    ] = "random",
    fps: Annotated[
        float, typer.Option("--fps", help="Re-time clips to this rate; 0 = frame by frame.")
    ] = 0.0,
    partition: Annotated[
        str, typer.Option("--partition", help="Published: global_occurrence or node_shard.")
    ] = "global_occurrence",
    scope: Annotated[
        str, typer.Option("--scope", help="node_shard: complete or collection_relative.")
    ] = "complete",
    readers: Annotated[
        bool, typer.Option("--readers", help="Count what each rank and worker takes; published.")
    ] = False,
    compare: Annotated[
        str, typer.Option("--compare", help="As --readers, beside a second RANKSxWORKERS.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Show what a reader takes in one epoch, and the fingerprint of the whole plan.

    `published` shows a fresh sampler, as the published tool does; `indexed` is one order for all
    ranks and workers.
    """
    from solarwm.data.index import read_index
    from solarwm.data.plan import PlanFingerprint

    one_of("--order", order, ("published", "indexed"))
    one_of("--start", start, ("random", "fixed", "first"))
    one_of("--partition", partition, ("global_occurrence", "node_shard"))
    one_of("--scope", scope, ("complete", "collection_relative"))
    for name, value, least in (
        ("--pixel-frames", pixel_frames, 1),
        ("--epoch", epoch, 0),
        ("--shuffle-buffer", shuffle_buffer, 1),
    ):
        if value < least:
            raise usage(f"{name} must be at least {least}", f"it is {value}")
    rows = read_index(index)
    if (readers or compare) and order == "indexed":
        raise usage("--readers and --compare need --order published", "indexed has one order")
    extra: dict[str, Any] = {}
    if order == "indexed":
        plans = _indexed_plans(rows, seed, pixel_frames, epoch, start, fps)
    else:
        from solarwm.data.plan import PlanSettings, PublishedOrder

        settings = PlanSettings(
            seed=seed,
            frames=pixel_frames,
            start=start,
            fps=fps,
            shuffle_buffer=shuffle_buffer,
            partition=partition,
            scope=scope,
        )
        reader = _reader(
            rank, world_size, local_world_size, sequence_parallel_size, worker_id, num_workers
        )
        if readers or compare:
            from solarwm.cli.data_shares import show_shares

            show_shares(
                rows,
                settings,
                world_size=world_size,
                local_world_size=local_world_size,
                shared=sequence_parallel_size,
                workers=num_workers,
                epoch=epoch,
                compare=compare,
                json=json,
            )
            return
        if sequence_parallel_size > 1:
            extra["reader"] = asdict(reader)
        plans = PublishedOrder(rows, settings, reader).epoch(epoch)
    fingerprint = PlanFingerprint()
    shown: list[dict[str, Any]] = []
    for sample in plans:
        fingerprint.add(sample)
        if len(shown) < limit:
            shown.append(_shown(sample))
    value = {
        "full_plan_fingerprint": fingerprint.hexdigest(),
        "full_plan_count": fingerprint.count,
        "shown": shown,
        **extra,
    }
    emit(value, json=json, text=_plan_lines)


def _indexed_plans(rows: Index, seed: int, frames: int, epoch: int, start: str, fps: float) -> Any:
    from solarwm.data.order import IndexedOrder
    from solarwm.data.plan import SamplePlan
    from solarwm.data.windows import frame_offsets

    order = IndexedOrder.of(rows, seed)
    first = epoch * order.num_occurrences_per_epoch
    for k in range(first, first + order.num_occurrences_per_epoch):
        found = order.occurrence(k)
        row = rows.rows[found.row_ordinal]
        begin = 0
        if start != "first":
            begin = order.start_frame(k, row, frames, fps=fps, random_start=start == "random")
        offsets = frame_offsets(frames, source_fps=row.fps, output_fps=fps)
        yield SamplePlan(
            sample_id=row.sample_id,
            key=row.key,
            shard=row.shard,
            row_ordinal=row.ordinal,
            repeat=found.repeat,
            epoch=epoch,
            start_frame=begin,
            source_frame_indices=tuple(begin + offset for offset in offsets),
            reader_rank=0,
            worker=0,
        )


def _reader(
    rank: int, world_size: int, local_world_size: int, shared: int, worker: int, workers: int
) -> Any:
    from solarwm.data.plan import Reader

    local = local_world_size or world_size
    if min(world_size, local, shared, workers) < 1:
        raise usage("sizes must be at least 1", "world, node, sequence-parallel or worker count")
    if not (0 <= rank < world_size and 0 <= worker < workers):
        why = f"rank {rank} of {world_size}, worker {worker} of {workers}"
        raise usage("rank and worker must lie below their counts", why)
    if world_size % local or local % shared:
        why = f"{world_size} ranks, {local} a node, {shared} sharing a sample"
        raise usage("the counts do not divide", why)
    return Reader.of_launch(
        world_rank=rank,
        world_size=world_size,
        local_rank=rank % local,
        local_world_size=local,
        sequence_parallel_size=shared,
        worker=worker,
        num_workers=workers,
    )


def _shown(sample: SamplePlan) -> dict[str, Any]:
    return {
        "sample_id": sample.sample_id,
        "key": sample.key,
        "shard": sample.shard,
        "repeat_ordinal": sample.repeat,
        "start_frame": sample.start_frame,
        "source_frame_indices": list(sample.source_frame_indices),
    }


def _plan_lines(value: dict[str, Any]) -> list[str]:
    rows = [
        (
            item["sample_id"],
            str(item["repeat_ordinal"]),
            str(item["start_frame"]),
            str(item["source_frame_indices"][-1]),
            item["shard"],
        )
        for item in value["shown"]
    ]
    count, fingerprint = value["full_plan_count"], value["full_plan_fingerprint"]
    table = columns(rows, header=("sample", "repeat", "first frame", "last frame", "shard"))
    return [f"{count} samples, fingerprint {fingerprint}", "", *(table if rows else [])]
