"""`solarwm data`: indexes, plans, validation and the local world."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.data.index import Index
    from solarwm.data.plan import SamplePlan

group = typer.Typer(
    help="Indexes, plans, validation and the local world.",
    no_args_is_help=True,
    add_completion=False,
)

IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="JSONL or JSONL.GZ index.")]


@group.command("inspect", epilog="Example: solarwm data inspect world/train-index.jsonl.gz")
def inspect(index: IndexArgument, json: JsonOption = False) -> None:
    """Count the rows of an index, check every one, and print its three digests."""
    from solarwm.data.digest import inspect_index

    report = asdict(inspect_index(index))
    emit(report, json=json, text=lambda value: columns([(k, str(v)) for k, v in value.items()]))


@group.command(
    "plan",
    epilog="Example: solarwm data plan world/train-index.jsonl.gz --seed 42 --pixel-frames 33",
)
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
    json: JsonOption = False,
) -> None:
    """Show what a reader takes in one epoch, and the fingerprint of the whole plan.

    `published` shows a fresh sampler, as the published tool does; `indexed` is one order for all
    ranks and workers.
    """
    from solarwm.data.index import read_index
    from solarwm.data.plan import PlanFingerprint

    _one_of("--order", order, ("published", "indexed"))
    _one_of("--start", start, ("random", "fixed", "first"))
    _one_of("--partition", partition, ("global_occurrence", "node_shard"))
    _one_of("--scope", scope, ("complete", "collection_relative"))
    for name, value, least in (
        ("--pixel-frames", pixel_frames, 1),
        ("--epoch", epoch, 0),
        ("--shuffle-buffer", shuffle_buffer, 1),
    ):
        if value < least:
            raise _usage(f"{name} must be at least {least}", f"it is {value}")
    rows = read_index(index)
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


@group.command(
    "validate", epilog="Example: solarwm data validate world/train-index.jsonl.gz --pixel-frames 33"
)
def validate(
    index: IndexArgument,
    root: Annotated[
        Path | None, typer.Option("--root", help="Data root; default: the index's directory.")
    ] = None,
    pixel_frames: Annotated[
        int, typer.Option("--pixel-frames", help="Length of a clip; 0 asks for none.")
    ] = 0,
    fps: Annotated[float, typer.Option("--fps", help="Rate of a clip; 0 = of the source.")] = 0.0,
    camera_array_key: Annotated[
        str, typer.Option("--camera-array-key", help="Array of the camera NPZ.")
    ] = "c2w",
    max_rel_translation: Annotated[
        float, typer.Option("--max-rel-translation", help="Guard; 0 turns it off.")
    ] = 20.0,
    max_camera_abs: Annotated[
        float, typer.Option("--max-camera-abs", help="Guard; 0 turns it off.")
    ] = 20.0,
    decode: Annotated[
        bool, typer.Option("--decode", help="Also decode every video and count its frames.")
    ] = False,
    list_clips: Annotated[
        bool, typer.Option("--list", help="A line for every clip, not only for the bad ones.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Look at every row, shard, member and camera; list all faults (exit code 3)."""
    from solarwm.data.cameras import ARRAY_KEYS, CameraRules
    from solarwm.data.validation import ClipReport, Demands
    from solarwm.data.validation import validate as look
    from solarwm.errors.render import render_json

    _one_of("--camera-array-key", camera_array_key, ARRAY_KEYS)
    rules = CameraRules(
        array_key=camera_array_key,
        max_rel_translation=max_rel_translation or None,
        max_camera_abs=max_camera_abs or None,
    )
    clips: list[ClipReport] = []

    def keep(clip: ClipReport) -> None:
        if list_clips or clip.dropped:
            clips.append(clip)

    demands = Demands(frames=pixel_frames, fps=fps, rules=rules, decode=decode)
    report = look(index, root or index.parent, demands, on_clip=keep)
    value = {
        "schema": "solarwm.data-validation.v1",
        "index": str(index.resolve()),
        "root": str(report.root.resolve()),
        "rows": report.num_rows,
        "kept": report.num_kept,
        "shards": report.num_shards,
        "ok": not report.faults,
        "clips": [asdict(clip) for clip in clips],
        "faults": [fault for error in report.faults for fault in _faults(render_json(error))],
    }
    emit(value, json=json, text=_validation_lines)
    raise typer.Exit(report.faults[0].exit_code if report.faults else 0)


@group.command(
    "synthesize",
    epilog="Example: solarwm data synthesize --out world --clips 8 --frames 33 --height 64 "
    "--width 96 --seed 0",
)
def synthesize(
    out: Annotated[Path, typer.Option("--out", help="Folder to fill; it must hold no index yet.")],
    clips: Annotated[int, typer.Option("--clips", help="Clips; a quarter is for testing.")],
    frames: Annotated[int, typer.Option("--frames", help="Pixel frames of a clip.")],
    height: Annotated[int, typer.Option("--height", help="Picture height in pixels.")],
    width: Annotated[int, typer.Option("--width", help="Picture width in pixels.")],
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same bytes.")],
    fps: Annotated[float, typer.Option("--fps", help="Frames per second.")] = 16.0,
    workers: Annotated[int, typer.Option("--workers", help="Processes; no effect on bytes.")] = 1,
    scene: Annotated[
        str, typer.Option("--scene", help="The world the clips are filmed in.")
    ] = "room",
    focal_x: Annotated[
        float, typer.Option("--focal-x", help="Focal length / width; 0 = the published lens.")
    ] = 0.0,
    focal_y: Annotated[
        float, typer.Option("--focal-y", help="Focal length / height; 0 = the published lens.")
    ] = 0.0,
    json: JsonOption = False,
) -> None:
    """Film clips of a procedural world: shards, exact cameras, captions, two indexes."""
    try:
        import av  # noqa: F401  (the writer needs it only when a clip is encoded: too late to say so)

        from solarwm.synthetic.renderer import FIXED_LENS, Lens
        from solarwm.synthetic.writer import synthesize as film
    except ImportError as error:
        raise SolarError(
            "data.extra-missing",
            "PyAV is needed to write video",
            why=str(error),
            fixes=["pip install 'solarwm[data]'"],
        ) from None
    from solarwm.cli.progress import counted

    lens = Lens(fx=focal_x or FIXED_LENS.fx, fy=focal_y or FIXED_LENS.fy)
    with counted("filming", "clips") as progress:
        try:
            report = film(
                out,
                clips=clips,
                frames=frames,
                height=height,
                width=width,
                seed=seed,
                fps=fps,
                workers=workers,
                scene=scene,
                lens=lens,
                progress=progress,
            )
        except FileExistsError as error:
            raise SolarError(
                "cli.file-exists",
                "the folder already holds an index",
                where=str(out),
                why=str(error),
                fixes=["choose another --out"],
            ) from None
        except ValueError as error:
            raise _usage("the world cannot be made", str(error)) from None
    value = {
        "schema": "solarwm.synthesis.v1",
        "out": str(out.resolve()),
        "train_index": str(report.train_index.resolve()),
        "test_index": str(report.test_index.resolve()),
        "train_clips": report.num_train,
        "test_clips": report.num_test,
        "shards": list(report.shards),
        "bytes": report.num_bytes,
    }
    emit(value, json=json, text=lambda told: columns([(k, _cell(v)) for k, v in told.items()]))


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
        raise _usage("sizes must be at least 1", "world, node, sequence-parallel or worker count")
    if not (0 <= rank < world_size and 0 <= worker < workers):
        why = f"rank {rank} of {world_size}, worker {worker} of {workers}"
        raise _usage("rank and worker must lie below their counts", why)
    if world_size % local or local % shared:
        why = f"{world_size} ranks, {local} a node, {shared} sharing a sample"
        raise _usage("the counts do not divide", why)
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


def _validation_lines(value: dict[str, Any]) -> list[str]:
    rows = [
        (
            clip["sample_id"],
            f"{clip['source_frames']} at {clip['source_fps']:g}",
            f"{clip['frames']} at {clip['clip_fps']:g}",
            clip["dropped"] or "kept",
            clip["motion"],
        )
        for clip in value["clips"]
    ]
    lines = columns(rows, header=("sample", "source", "clip", "verdict", "camera")) if rows else []
    for fault in value["faults"]:
        lines += [
            "",
            f"{fault['code']}: {fault['headline']}",
            f"  {fault['where']}: {fault['why']}",
        ]
    verdict = "sound" if value["ok"] else f"{len(value['faults'])} faults"
    totals = f"{value['rows']} rows in {value['shards']} shards, {value['kept']} kept: {verdict}"
    return [*lines, *([""] if lines else []), totals]


def _faults(rendered: dict[str, Any]) -> list[Any]:
    return rendered["faults"]


def _cell(value: object) -> str:
    return f"{len(value)}" if isinstance(value, list) else str(value)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise _usage(f"{option} must be one of {', '.join(allowed)}", f"it is {value!r}")


def _usage(headline: str, why: str) -> SolarError:
    return SolarError("cli.usage", headline, why=why, fixes=["solarwm data --help"])
