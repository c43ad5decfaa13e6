"""A whole data set looked at before any accelerator is: rows, shards, members, cameras, lengths."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solarwm.data.cameras import CameraRules, check_lens, read_lens, read_track, refuse_guard
from solarwm.data.index import iterate_rows
from solarwm.data.records import manifest_of, num_frames_of, source_fps_of
from solarwm.data.rows import Row, typed_row
from solarwm.data.shards import ShardReader
from solarwm.data.windows import retimed_frames
from solarwm.errors.types import SolarError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipReport:
    """What one row offers: `frames` after re-timing to `clip_fps`; `dropped` is a fault code."""

    row: int
    """Counted from 1."""
    sample_id: str
    source_frames: int
    source_fps: float
    clip_fps: float
    frames: int
    motion: str
    dropped: str = ""


@dataclass(slots=True, kw_only=True)
class ValidationReport:
    """All faults of a data set. `num_kept` rows are fit for clips of the asked length."""

    index: Path
    root: Path
    num_rows: int = 0
    num_kept: int = 0
    num_shards: int = 0
    faults: list[SolarError] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What clips are to be cut: `frames` of 0 asks for no length; `fps` 0 keeps the source rate."""

    frames: int = 0
    fps: float = 0.0
    rules: CameraRules = field(default_factory=CameraRules)
    decode: bool = False
    """Decode every video to the end and count its frames."""


def validate(
    index: Path,
    root: Path,
    demands: Demands,
    *,
    limit: int = 0,
    jobs: int = 1,
    on_clip: Callable[[ClipReport], None] | None = None,
) -> ValidationReport:
    """Look at the rows of an index and at what they point to, without stopping at a fault.

    `limit` above 0 looks at that many rows; `jobs` processes share the shards between them, and the
    report is the same for any number. A fault of a shard as a whole is listed once. Raises SolarError
    only where the index itself cannot be read on.
    """
    report = ValidationReport(index=Path(index), root=Path(root))
    faults: list[tuple[int, SolarError]] = []

    def note(fault: SolarError) -> None:
        report.num_rows += 1
        faults.append((report.num_rows, fault))

    groups: dict[str, list[Row]] = {}
    for ordinal, parsed in iterate_rows(index, on_fault=note):
        if limit and report.num_rows >= limit:
            break
        report.num_rows += 1
        row = typed_row(parsed, ordinal)
        groups.setdefault(row.shard, []).append(row)
    found = [pair for part in _looks(root, groups, demands, jobs) for pair in part]
    for clip, fault in sorted(found, key=lambda pair: pair[0].row):
        report.num_kept += not clip.dropped
        faults += [(clip.row, fault)] if fault is not None else []
        if on_clip:
            on_clip(clip)
    report.faults = [fault for _, fault in sorted(faults, key=lambda pair: pair[0])]
    report.num_shards = len(groups)
    return report


Looked = tuple[ClipReport, SolarError | None]


def _looks(
    root: Path, groups: Mapping[str, list[Row]], demands: Demands, jobs: int
) -> Iterator[list[Looked]]:
    work = [(root, rows, demands) for rows in groups.values()]
    if jobs <= 1 or len(work) <= 1:
        yield from map(_look_at_shard, work)
        return
    # Spawned, since a fork of a process with threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(work)), mp_context=context) as pool:
        yield from pool.map(_look_at_shard, work)


def _look_at_shard(work: tuple[Path, list[Row], Demands]) -> list[Looked]:
    root, rows, demands = work
    dead: dict[str, SolarError] = {}
    found: list[Looked] = []
    with ShardReader(root) as reader:
        for row in rows:
            faults: list[SolarError] = []
            clip = _look(reader, row, demands, faults, dead)
            found.append((clip, faults[0] if faults else None))
    return found


def _look(
    reader: ShardReader,
    row: Row,
    demands: Demands,
    faults: list[SolarError],
    dead: dict[str, SolarError],
) -> ClipReport:
    told: dict[str, Any] = {"source_frames": row.num_frames, "source_fps": row.fps, "motion": ""}
    dropped = dead[row.shard].code if row.shard in dead else ""
    try:
        if dropped:
            return _report(row, told, demands, dropped)
        _open(reader, row, dead)
        manifest = manifest_of(reader, row)
        told["source_frames"] = num_frames_of(row, manifest)
        told["source_fps"] = source_fps_of(row, manifest)
        told["motion"] = _cameras(reader, row, manifest, demands.rules)
        _members(reader, row)
        if demands.decode:
            _decode(reader, row, told["source_frames"])
    except SolarError as fault:
        dropped = fault.code
        faults.append(fault)
    clip = _report(row, told, demands, dropped)
    if demands.frames and clip.frames < demands.frames and not dropped:
        fault = _too_short(row, clip, demands.frames)
        faults.append(fault)
        return _report(row, told, demands, fault.code)
    return clip


def _report(row: Row, told: Mapping[str, Any], demands: Demands, dropped: str) -> ClipReport:
    rate = demands.fps or told["source_fps"]
    frames = retimed_frames(told["source_frames"], source_fps=told["source_fps"], output_fps=rate)
    return ClipReport(
        row=row.ordinal + 1,
        sample_id=row.sample_id,
        clip_fps=rate,
        frames=frames,
        dropped=dropped,
        **told,
    )


def _open(reader: ShardReader, row: Row, dead: dict[str, SolarError]) -> None:
    try:
        reader.members(row.shard, shard_size=row.shard_size)
    except SolarError as fault:
        dead[row.shard] = fault
        raise


def _cameras(reader: ShardReader, row: Row, manifest: Mapping[str, Any], rules: CameraRules) -> str:
    from solarwm.camera.guards import magnitude_fault
    from solarwm.camera.motion import describe_motion

    if row.camera_member is None:
        raise _row_fault(
            "index.bad-field", row, "the row has no camera_member", "raw samples need one"
        )
    track = read_track(reader.read(row.shard, row.camera_member), manifest, rules, row.sample_id)
    found = num_frames_of(row, manifest)
    if found and len(track) != found:
        why = f"{len(track)} poses, {found} source frames"
        raise _row_fault("camera.shape", row, "the number of poses is wrong", why)
    fault = magnitude_fault(
        track,
        rows=range(len(track)),
        rate=source_fps_of(row, manifest),
        max_rel_translation=rules.max_rel_translation,
        max_camera_abs=rules.max_camera_abs,
    )
    if fault:
        refuse_guard(fault.why, fault.frame, row.sample_id)
    if row.intrinsics_member is not None:
        data = reader.read(row.shard, row.intrinsics_member)
        if rules.use_source_lens:
            read_lens(data, len(track), range(len(track)), row.sample_id)
        else:
            check_lens(data, row.sample_id)
    return describe_motion(track)


def _members(reader: ShardReader, row: Row) -> None:
    table = reader.members(row.shard)
    if row.video_member is None:
        raise _row_fault(
            "index.bad-field", row, "the row has no video_member", "raw samples need one"
        )
    for name in (row.video_member, row.intrinsics_member):
        if name is not None and name not in table:
            why = f"{name!r} is not among the members of {row.shard}"
            raise _row_fault("shard.missing-member", row, "the shard has no such member", why)


def _decode(reader: ShardReader, row: Row, promised: int) -> None:
    from solarwm.data.video import count_frames

    assert row.video_member is not None
    found = count_frames(reader.read(row.shard, row.video_member), sample_id=row.sample_id)
    if promised and found != promised:
        why = f"{promised} are promised, {found} could be decoded"
        raise _row_fault("video.too-few-frames", row, "the video has another number of frames", why)


def _too_short(row: Row, clip: ClipReport, needed: int) -> SolarError:
    return _row_fault(
        "index.too-few-frames",
        row,
        "the sample is too short for the clip",
        f"{clip.source_frames} frames at {clip.source_fps:g} fps are {clip.frames} frames at "
        f"{clip.clip_fps:g} fps; {needed} are needed",
    )


def _row_fault(code: str, row: Row, headline: str, why: str) -> SolarError:
    return SolarError(
        code,
        f"{headline}: {row.sample_id}",
        where=f"row {row.ordinal + 1}, {row.shard}",
        why=why,
        context={"sample_id": row.sample_id, "row": row.ordinal + 1, "shard": row.shard},
    )
