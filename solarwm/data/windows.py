"""Which source frames a clip takes: re-timing, and the published fixed windows (spec of the
published format).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

HASH_NAMESPACE_153 = "solarwm-latent-153f-v1"
SIX_WINDOW_DATASETS = frozenset(("abot", "miradata", "sekai_game"))


def frame_offsets(
    frames: int, *, source_fps: float = 0.0, output_fps: float = 0.0
) -> tuple[int, ...]:
    """Offsets of the clip's frames from its start, in source frames: `o_k = max(o_{k-1}, rint(k f /
    g))`.

    f is the source rate and g the output rate in frames per second; halves round to even. Without
    an output rate, or when the source rate is unknown (0), frames are taken one by one.
    """
    if output_fps <= 0 or source_fps <= 0 or source_fps == output_fps:
        return tuple(range(frames))
    ratio = source_fps / output_fps
    offsets: list[int] = []
    highest = 0
    for k in range(frames):
        highest = max(highest, round(k * ratio))
        offsets.append(highest)
    return tuple(offsets)


def retimed_frames(num_frames: int, *, source_fps: float = 0.0, output_fps: float = 0.0) -> int:
    """How many frames at the output rate a source of `num_frames` frames yields."""
    if output_fps <= 0 or source_fps <= 0 or source_fps == output_fps:
        return num_frames
    ratio = source_fps / output_fps
    count = int(num_frames / ratio)
    while round(count * ratio) < num_frames:
        count += 1
    while count and round((count - 1) * ratio) >= num_frames:
        count -= 1
    return count


def windows_81(num_frames: int) -> tuple[int, ...]:
    """Starts of the 81-frame windows of a source clip."""
    count = max(1, (num_frames - 1 + 40) // 80)
    free = num_frames - 81
    if count == 1:
        return (free // 2,)
    return tuple((2 * i * free + (count - 1)) // (2 * (count - 1)) for i in range(count))


def windows_153_six(num_frames: int) -> tuple[int, ...]:
    """Starts of the six 153-frame windows of a clip from one of `SIX_WINDOW_DATASETS`."""
    return tuple((i * (num_frames - 153) + 2) // 5 for i in range(6))


def window_153_hashed(num_frames: int, source_sample_id: str) -> int:
    """Start of the one 153-frame window of any other clip."""
    text = HASH_NAMESPACE_153.encode() + b"\x00" + source_sample_id.encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") % (num_frames - 152)


def window_fault(
    block: Mapping[str, Any], *, frames: int, num_frames: int, assignment: str, sample_id: str
) -> str | None:
    """What is wrong with the window a manifest's `preencoding` block tells, or None.

    `deterministic_hash_v1` recomputes every start; `materialized_index_v1` takes ordinary 153-frame
    starts as the index froze them and checks the sample id instead.
    """
    namespace, source = block.get("window_hash_namespace"), str(block.get("source_sample_id"))
    if namespace != f"solarwm-latent-{frames}f-v1":
        return f"expected namespace solarwm-latent-{frames}f-v1, found {namespace!r}"
    index, count, start = (
        block.get(key) for key in ("window_index", "window_count", "start_frame")
    )
    if not (type(index) is int and type(count) is int and 0 <= index < count):
        return f"window {index!r} of {count!r}"
    if num_frames < frames:
        return f"a source of {num_frames} frames holds no window of {frames}"
    dataset = block.get("source_dataset")
    if assignment == "materialized_index_v1":
        if sample_id != f"{source}/latent-{frames}f-w{index:02d}":
            return f"expected sample id {source}/latent-{frames}f-w{index:02d}"
        if dataset not in source.split("/")[:2]:
            return f"source dataset {dataset!r} is not in the first two parts of {source!r}"
    if frames == 81:
        starts = windows_81(num_frames)
    elif dataset in SIX_WINDOW_DATASETS:
        starts = windows_153_six(num_frames)
    elif assignment == "materialized_index_v1":
        return None if count == 1 else f"expected one window, found {count}"
    else:
        starts = (window_153_hashed(num_frames, source),)
    if len(starts) != count or starts[index] != start:
        return f"expected windows at {list(starts)}, found window {index} of {count} at {start}"
    return None
