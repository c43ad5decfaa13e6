"""Which source frames a clip takes: re-timing, and the published fixed windows (spec of the
published format).
"""

from __future__ import annotations

from hashlib import blake2b

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
