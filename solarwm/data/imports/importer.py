"""Videos and cameras of the user's own into raw shards and indexes that every route reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.data.imports.probe import VideoFacts, probe_video
from solarwm.data.imports.sources import ImportClip
from solarwm.data.imports.tracks import CameraTrack, kind_of, read_cameras
from solarwm.data.packing import (
    GUARD,
    PackedSample,
    camera_block,
    index_bytes,
    npy_bytes,
    npz_bytes,
    pack,
    shard_identity,
)
from solarwm.data.windows import retimed_frames
from solarwm.errors.types import SolarError
from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import make_directories, write_bytes_atomic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHARD_BYTES = 256 * 2**20
TIER = "high"
SHORT = ("error", "drop", "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRules:
    """How clips are taken in; every choice that changes what lands in the index is here."""

    dataset: str
    frames: int = 0
    """Frames a clip must have after re-timing; 0 asks for no length."""
    fps: float = 0.0
    """Rate clips will be trained at, for the length check; 0 = their own. Videos stay as they are."""
    short: str = "error"
    """`error` counts a short clip as failed, `drop` leaves it out, `keep` takes it in."""
    cameras: str = "auto"
    """Format of the camera files; `auto` tells by names and numbers, `none` takes none."""
    convention: str | None = None
    scale: float = 1.0
    """Factor on translations, for tracks that are not in metres."""
    test_clips: int | None = None
    """Clips for the test index; None = a tenth of them, at most 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedClip:
    """What became of one clip: `verdict` is kept, dropped or failed."""

    name: str
    verdict: str
    frames: int = 0
    fps: float = 0.0
    clip_frames: int = 0
    """Frames after re-timing."""
    cameras: str = ""
    """Format its cameras came from; `identity` when it has none."""
    motion: str = ""
    code: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """All clips of an import, and what was written."""

    clips: tuple[ImportedClip, ...]
    num_train: int
    num_test: int
    shards: tuple[str, ...]
    num_bytes: int

    @property
    def num_failed(self) -> int:
        """Clips that a fault kept out, against the user's rules."""
        return sum(clip.verdict == "failed" for clip in self.clips)


def import_clips(
    clips: Sequence[ImportClip],
    out: Path,
    rules: ImportRules,
    *,
    on_clip: Callable[[ImportedClip], None] = lambda clip: None,
) -> ImportReport:
    """Write shards below `out`, then `train-index.jsonl.gz` and, where there are any, `test-index`.

    A bad clip never stops the others; each gets its line. Indexes are written last. Raises SolarError
    `cli.file-exists` (exit 2) when `out` holds an index, `import.nothing-left` (exit 3) when no clip
    could be taken in, and then writes nothing.
    """
    indexes = {split: out / f"{split}-index.jsonl.gz" for split in ("train", "test")}
    for path in indexes.values():
        if path.exists():
            raise SolarError(
                "cli.file-exists",
                "the folder already holds an index",
                where=str(path),
                fixes=["choose another --out"],
            )
    told: list[ImportedClip] = []

    def tell(clip: ImportedClip) -> None:
        told.append(clip)
        on_clip(clip)

    rows: list[dict[str, Any]] = []
    shards: list[str] = []
    num_bytes = 0
    for group in _groups(_samples(clips, rules, tell)):
        name = f"raw-wds/{rules.dataset}/shards/kept-{TIER}-{len(shards):06d}.tar"
        shard = pack(group)
        _publish(out / name, shard)
        identity = shard_identity(name, shard)
        rows += [{**sample.row, **identity} for sample in group]
        shards.append(name)
        num_bytes += len(shard)
    if not rows:
        raise SolarError(
            "import.nothing-left",
            f"none of the {len(clips)} clips could be imported",
            where=str(out),
            why="; ".join(f"{clip.name}: {clip.why}" for clip in told[:3]),
            fixes=["mend the clips, or loosen --frames, --short, --scale"],
        )
    test = _test_ids(rows, rules.test_clips)
    for split, path in indexes.items():
        own = [
            {**row, "split": split, "recipe_role": split}
            for row in rows
            if (row["sample_id"] in test) == (split == "test")
        ]
        if own:
            data = index_bytes(own)
            _publish(path, data)
            num_bytes += len(data)
    return ImportReport(
        clips=tuple(told),
        num_train=len(rows) - len(test),
        num_test=len(test),
        shards=tuple(shards),
        num_bytes=num_bytes,
    )


def _samples(
    clips: Sequence[ImportClip], rules: ImportRules, tell: Callable[[ImportedClip], None]
) -> Iterator[PackedSample]:
    keys: dict[str, str] = {}
    for clip in clips:
        facts: dict[str, Any] = {}
        try:
            sample = _sample(clip, rules, facts, keys)
        except SolarError as fault:
            why = f"{fault.headline}; {fault.why}" if fault.why else fault.headline
            tell(ImportedClip(name=clip.name, verdict="failed", code=fault.code, why=why, **facts))
            continue
        if sample is None:
            why = f"{facts['clip_frames']} frames after re-timing, {rules.frames} are needed"
            code = "index.too-few-frames"
            tell(ImportedClip(name=clip.name, verdict="dropped", code=code, why=why, **facts))
            continue
        tell(ImportedClip(name=clip.name, verdict="kept", **facts))
        yield sample


def _sample(
    clip: ImportClip, rules: ImportRules, facts: dict[str, Any], keys: dict[str, str]
) -> PackedSample | None:
    from solarwm.camera.motion import describe_motion

    video = probe_video(clip.video, clip.place)
    rate = rules.fps or video.fps
    facts.update(
        frames=video.frames,
        fps=video.fps,
        clip_frames=retimed_frames(video.frames, source_fps=video.fps, output_fps=rate),
    )
    if clip.declared_fps and abs(clip.declared_fps - video.fps) > 0.01:
        raise SolarError(
            "index.bad-field",
            "the table and the video tell different frame rates",
            where=clip.place,
            why=f"{clip.declared_fps:g} and {video.fps:g} frames per second",
        )
    if facts["clip_frames"] < rules.frames and rules.short != "keep":
        if rules.short == "drop":
            return None
        raise SolarError(
            "index.too-few-frames",
            "the clip is too short",
            where=clip.place,
            why=f"{video.frames} frames at {video.fps:g} fps are {facts['clip_frames']} at {rate:g} fps; "
            f"{rules.frames} are needed",
            fixes=["--short drop leaves such clips out, --short keep takes them in"],
        )
    track = _track(clip, rules)
    facts["cameras"] = track.kind if track else "identity"
    poses = _poses(track, video, rules, clip)
    facts["motion"] = describe_motion(poses)
    sample_id = f"{rules.dataset}/{clip.name}"
    key = re.sub(r"[^A-Za-z0-9_-]", "_", sample_id.replace("/", "__"))
    if key in keys:
        why = f"{clip.name!r} and {keys[key]!r} both become {key}"
        raise SolarError("index.duplicate-id", "two clips get one key", where=clip.place, why=why)
    keys[key] = clip.name
    lens = _lens(track, video, clip)
    manifest = {
        "source_sample_id": sample_id,
        "video": {
            "num_frames": video.frames,
            "fps": video.fps,
            "width": video.width,
            "height": video.height,
        },
        "prompt": {"text": clip.caption},
        "metadata": {"camera_source": facts["cameras"], "camera_scale": rules.scale},
        "camera": camera_block(video.frames),
    }
    members = {"video.mp4": video.data, "camera.npz": npz_bytes(c2w=poses)}
    row: dict[str, Any] = {
        "sample_id": sample_id,
        "key": key,
        "epoch_repeats": 1,
        "dataset": rules.dataset,
        "kept_tier": TIER,
        "num_frames": video.frames,
        "fps": video.fps,
        "width": video.width,
        "height": video.height,
        "caption": clip.caption,
        "video_member": f"{key}.video.mp4",
        "camera_member": f"{key}.camera.npz",
        "manifest_member": f"{key}.manifest.json",
    }
    if lens is not None:
        members["intrinsics.npy"] = npy_bytes(lens)
        row["intrinsics_member"] = f"{key}.intrinsics.npy"
    members["manifest.json"] = canonical_json(manifest)
    return PackedSample(members=members, row=row)


def _track(clip: ImportClip, rules: ImportRules) -> CameraTrack | None:
    if rules.cameras == "none" or clip.cameras is None:
        return None
    if not clip.cameras.exists():
        raise SolarError(
            "camera.unreadable", f"there is no {clip.cameras.name}", where=str(clip.cameras)
        )
    kind = kind_of(clip.cameras) if rules.cameras == "auto" else rules.cameras
    if kind is None:
        raise SolarError(
            "camera.unreadable",
            f"the format of {clip.cameras.name} is not known",
            where=str(clip.cameras),
            fixes=["--cameras re10k, colmap, tum, kitti, nerf, npz or npy"],
        )
    return read_cameras(clip.cameras, kind, convention=rules.convention)


def _poses(
    track: CameraTrack | None, video: VideoFacts, rules: ImportRules, clip: ImportClip
) -> NDArray[np.float32]:
    import numpy as np

    from solarwm.camera.guards import magnitude_fault, track_fault

    if track is None:
        return np.tile(np.eye(4, dtype=np.float32), (video.frames, 1, 1))
    poses = track.c2w_N44[_matching(track, video, clip)].copy()
    poses[:, :3, 3] *= rules.scale
    fault = track_fault(poses) or magnitude_fault(
        poses,
        rows=range(len(poses)),
        rate=video.fps,
        max_rel_translation=GUARD,
        max_camera_abs=GUARD,
    )
    if fault is not None:
        frame = "" if fault.frame is None else f"frame {fault.frame}: "
        raise SolarError(
            f"camera.{fault.kind}",
            "the camera track cannot be trained on",
            where=str(clip.cameras),
            why=f"{frame}{fault.why}",
            fixes=["--scale 0.01 for a track in centimetres"],
        )
    return poses.astype(np.float32)


def _matching(track: CameraTrack, video: VideoFacts, clip: ImportClip) -> NDArray[np.int64]:
    """The pose of every frame: one for one, else the nearest in time where the track tells times."""
    import numpy as np

    count = len(track.c2w_N44)
    if count == video.frames:
        return np.arange(count)
    times = track.times_s
    if times is None or np.any(np.diff(times) <= 0):
        why = f"{count} poses, {video.frames} frames, and no rising times to match them by"
        raise SolarError(
            "camera.shape", "the number of poses is wrong", where=str(clip.cameras), why=why
        )
    wanted = times[0] + np.arange(video.frames) / video.fps
    right = np.clip(np.searchsorted(times, wanted), 1, count - 1)
    nearest = np.where(wanted - times[right - 1] <= times[right] - wanted, right - 1, right)
    apart = np.abs(times[nearest] - wanted)
    far = np.flatnonzero(apart > 0.5 / video.fps + 1e-6)
    if far.size:
        frame = int(far[0])
        why = (
            f"frame {frame} at {wanted[frame]:.3f} s: the nearest pose is {apart[frame]:.3f} s away, "
            f"limit {0.5 / video.fps:.3f} s"
        )
        raise SolarError(
            "camera.shape", "poses and frames do not meet in time", where=str(clip.cameras), why=why
        )
    return nearest


def _lens(
    track: CameraTrack | None, video: VideoFacts, clip: ImportClip
) -> NDArray[np.float64] | None:
    """fx, fy, cx, cy of every frame in pixels of the stored video [N,4], or None when unknown."""
    import numpy as np

    if track is None or track.lens_N4 is None:
        return None
    lens = track.lens_N4
    if len(lens) == 1:
        lens = np.repeat(lens, video.frames, axis=0)
    elif len(lens) == len(track.c2w_N44):
        lens = lens[_matching(track, video, clip)]
    else:
        why = f"{len(lens)} lenses, {len(track.c2w_N44)} poses"
        raise SolarError("camera.lens", "lenses and poses differ", where=str(clip.cameras), why=why)
    size = np.array([video.width, video.height], dtype=np.float64)
    if track.lens_of_video:
        return lens
    if track.lens_size is None:
        return lens * np.tile(size, 2)
    factor = size / np.array(track.lens_size, dtype=np.float64)
    if abs(factor[0] / factor[1] - 1) > 0.01:
        why = f"the cameras are for {track.lens_size}, the video is {video.width} x {video.height}"
        raise SolarError("camera.lens", "the lens is of another picture", where=clip.place, why=why)
    return lens * np.tile(factor, 2)


def _groups(samples: Iterator[PackedSample]) -> Iterator[list[PackedSample]]:
    group: list[PackedSample] = []
    size = 0
    for sample in samples:
        if group and size + sample.size > SHARD_BYTES:
            yield group
            group, size = [], 0
        group.append(sample)
        size += sample.size
    if group:
        yield group


def _test_ids(rows: Sequence[dict[str, Any]], wanted: int | None) -> set[str]:
    """The published split rule: the clips with the lowest SHA-256 of their id are for testing."""
    count = min(100, len(rows) // 10) if wanted is None else min(wanted, len(rows) - 1)
    ranked = sorted(
        (row["sample_id"] for row in rows),
        key=lambda name: hashlib.sha256(name.encode()).digest()[:8],
    )
    return set(ranked[:count])


def _publish(path: Path, data: bytes) -> None:
    make_directories(path.parent)
    write_bytes_atomic(path, data)
