"""One raw sample, from its row and shard to checked pixels and cameras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solarwm.data.cameras import (
    CameraRules,
    check_lens,
    read_lens,
    read_manifest,
    read_track,
    refuse_guard,
)
from solarwm.data.framing import WAN, Framing
from solarwm.data.rows import Row
from solarwm.data.shards import ShardReader
from solarwm.data.video import DEFAULT_TIMEOUT_S, decode_frames, iterate_frames
from solarwm.data.windows import frame_offsets
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SKIPPED_CODES = frozenset(("camera.guard",))
"""Faults of a sound file that training passes over by taking a substitute; every other fault stops
it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A clip's cameras and words, without its pixels."""

    sample_id: str
    key: str
    caption: str
    start_frame: int
    frame_indices: tuple[int, ...]
    c2w_N44: NDArray[np.float32]
    """Absolute OpenCV camera-to-world of every frame of the clip."""
    intrinsics_33: NDArray[np.float32]
    """Focal lengths and centre divided by width and height of the canvas."""
    fps: float
    source_num_frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawClip(Track):
    """A clip ready to encode: pixels [N,Y,X,3] on the canvas, cameras, caption."""

    pixels_NYX3: NDArray[Any]
    """uint8; fp32 in 0..1 by the LTX rule."""


def read_clip(
    reader: ShardReader,
    row: Row,
    *,
    start_frame: int,
    frames: int,
    height: int,
    width: int,
    fps: float,
    rules: CameraRules,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    framing: Framing = WAN,
) -> RawClip:
    """`frames` frames from `start_frame` (in source frames) at `fps` frames per second (0 = as
    stored).

    Frames are re-timed by the nearest source frame, resized to cover the canvas and cropped to its
    centre by the rule of `framing`. Raises SolarError `shard.*`, `video.*`, `camera.*` or
    `index.*` (exit 3), each naming the sample.
    """
    manifest = manifest_of(reader, row)
    indices, rate = _plan(row, manifest, start_frame, frames, fps)
    poses = _checked_poses(reader, row, manifest, indices, rate, rules)
    data = reader.read(row.shard, _member(row, "video_member"), shard_size=row.shard_size)
    stored = decode_frames(data, indices, sample_id=row.sample_id, timeout_s=timeout_s)
    source = (stored.shape[1], stored.shape[2])
    return RawClip(
        sample_id=row.sample_id,
        key=row.key,
        caption=caption_of(row, manifest),
        start_frame=start_frame,
        frame_indices=indices,
        c2w_N44=poses,
        intrinsics_33=_lens(reader, row, indices, source, (height, width), rules, framing),
        fps=rate,
        source_num_frames=num_frames_of(row, manifest),
        pixels_NYX3=framing.frame(stored, height, width),
    )


def read_opening(
    reader: ShardReader,
    row: Row,
    *,
    start_frame: int,
    height: int,
    width: int,
    framing: Framing = WAN,
    **window: Any,
) -> tuple[RawClip, Iterator[NDArray[Any]]]:
    """A clip with its first frame only, and an iterator over all its frames [Y,X,3], decoded as they are
    asked for; settings and faults as `read_clip`."""
    from dataclasses import fields

    track = read_cameras(
        reader,
        row,
        start_frame=start_frame,
        height=height,
        width=width,
        framing=framing,
        **window,
    )
    data = reader.read(row.shard, _member(row, "video_member"), shard_size=row.shard_size)

    def pictures(indices: Sequence[int]) -> Iterator[NDArray[Any]]:
        for picture in iterate_frames(data, indices, sample_id=row.sample_id):
            yield framing.frame(picture[None], height, width)[0]

    shown = {field.name: getattr(track, field.name) for field in fields(Track)}
    first = next(pictures(track.frame_indices[:1]))
    return RawClip(**shown, pixels_NYX3=first[None]), pictures(track.frame_indices)


def read_cameras(
    reader: ShardReader,
    row: Row,
    *,
    start_frame: int,
    frames: int,
    height: int,
    width: int,
    fps: float,
    rules: CameraRules,
    framing: Framing = WAN,
) -> Track:
    """The same without touching the video: what training needs once the latents are cached."""
    manifest = manifest_of(reader, row)
    indices, rate = _plan(row, manifest, start_frame, frames, fps)
    poses = _checked_poses(reader, row, manifest, indices, rate, rules)
    return Track(
        sample_id=row.sample_id,
        key=row.key,
        caption=caption_of(row, manifest),
        start_frame=start_frame,
        frame_indices=indices,
        c2w_N44=poses,
        intrinsics_33=_lens(
            reader,
            row,
            indices,
            _stored_size(row, manifest) if rules.use_source_lens else (height, width),
            (height, width),
            rules,
            framing,
        ),
        fps=rate,
        source_num_frames=num_frames_of(row, manifest),
    )


def manifest_of(reader: ShardReader, row: Row) -> Mapping[str, Any]:
    """The inline manifest of a row, else its manifest member; one of them is required."""
    if row.manifest is not None:
        return row.manifest
    data = reader.read(row.shard, _member(row, "manifest_member"), shard_size=row.shard_size)
    return read_manifest(data, row.sample_id)


def caption_of(row: Row, manifest: Mapping[str, Any]) -> str:
    """The row's caption, else the manifest's prompt text, else an empty one."""
    if row.caption is not None:
        return row.caption
    prompt = manifest.get("prompt")
    text = prompt.get("text") if isinstance(prompt, Mapping) else None
    return text if isinstance(text, str) else ""


def num_frames_of(row: Row, manifest: Mapping[str, Any]) -> int:
    """Frames of the source video by the row, else by the manifest, else 0."""
    value = row.num_frames or _video(manifest).get("num_frames")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def source_fps_of(row: Row, manifest: Mapping[str, Any]) -> float:
    """Frames per second of the source by row and manifest, which must agree; 0 if unknown."""
    told = _video(manifest).get("fps")
    manifest_fps = 0.0
    if isinstance(told, int | float) and not isinstance(told, bool) and told > 0:
        manifest_fps = float(told)
    if row.fps > 0 and manifest_fps > 0 and abs(row.fps - manifest_fps) > 1e-3:
        raise _fault(
            "index.bad-field",
            row,
            "fps of the row and of the manifest differ",
            f"{row.fps:g} and {manifest_fps:g}",
        )
    return row.fps or manifest_fps


def _plan(
    row: Row, manifest: Mapping[str, Any], start_frame: int, frames: int, fps: float
) -> tuple[tuple[int, ...], float]:
    source_fps = source_fps_of(row, manifest)
    offsets = frame_offsets(frames, source_fps=source_fps, output_fps=fps)
    indices = tuple(start_frame + offset for offset in offsets)
    found = num_frames_of(row, manifest)
    if start_frame < 0 or (found and indices[-1] >= found):
        raise _fault(
            "index.too-few-frames",
            row,
            "the clip does not fit into the source video",
            f"{frames} frames from {start_frame} need source frames up to {indices[-1]}, "
            f"there are {found} "
            f"(source fps {source_fps:g}, clip fps {fps or source_fps:g})",
        )
    return indices, fps if fps > 0 else source_fps


def _checked_poses(
    reader: ShardReader,
    row: Row,
    manifest: Mapping[str, Any],
    indices: tuple[int, ...],
    rate: float,
    rules: CameraRules,
) -> NDArray[np.float32]:
    from solarwm.camera.guards import magnitude_fault

    data = reader.read(row.shard, _member(row, "camera_member"), shard_size=row.shard_size)
    track = read_track(data, manifest, rules, row.sample_id)
    found = num_frames_of(row, manifest)
    if len(track) <= indices[-1] or (found and len(track) != found):
        raise _fault(
            "camera.shape",
            row,
            "the number of poses is wrong",
            f"{len(track)} poses, {found} source frames",
        )
    poses = track[list(indices)]
    fault = magnitude_fault(
        poses,
        rows=range(len(indices)) if rules.latent_rows is None else rules.latent_rows,
        rate=rate,
        max_rel_translation=rules.max_rel_translation,
        max_camera_abs=rules.max_camera_abs,
    )
    if fault:
        refuse_guard(
            fault.why, None if fault.frame is None else indices[fault.frame], row.sample_id
        )
    return poses


def _lens(
    reader: ShardReader,
    row: Row,
    indices: tuple[int, ...],
    source: tuple[int, int],
    canvas: tuple[int, int],
    rules: CameraRules,
    framing: Framing,
) -> NDArray[np.float32]:
    from solarwm.camera.intrinsics import fixed_intrinsics, matrix, through_crop

    if not rules.use_source_lens:
        if row.intrinsics_member is not None:
            stored = reader.read(row.shard, row.intrinsics_member, shard_size=row.shard_size)
            check_lens(stored, row.sample_id)
        return fixed_intrinsics()
    data = reader.read(row.shard, _member(row, "intrinsics_member"), shard_size=row.shard_size)
    lens = read_lens(data, row.num_frames, indices, row.sample_id)
    cover = framing.cover(*source, *canvas)
    cropped = through_crop(
        lens,
        source=source,
        resized=(cover.resized_height, cover.resized_width),
        corner=(cover.top, cover.left),
        canvas=canvas,
    )
    return matrix(*(float(value) for value in cropped[0]))


def _stored_size(row: Row, manifest: Mapping[str, Any]) -> tuple[int, int]:
    video = _video(manifest)
    height, width = row.height or video.get("height"), row.width or video.get("width")
    if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
        raise _fault(
            "index.bad-field",
            row,
            "the size of the source video is unknown",
            "width and height are needed",
        )
    return height, width


def _video(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    video = manifest.get("video")
    return video if isinstance(video, Mapping) else {}


def _member(row: Row, name: str) -> str:
    member = getattr(row, name)
    if member is None:
        raise _fault("index.bad-field", row, f"the row has no {name}", "a raw sample needs it")
    return member


def _fault(code: str, row: Row, headline: str, why: str) -> SolarError:
    return SolarError(
        code,
        f"{headline}: {row.sample_id}",
        where=row.sample_id,
        why=why,
        context={"sample_id": row.sample_id, "row": row.ordinal + 1},
    )
