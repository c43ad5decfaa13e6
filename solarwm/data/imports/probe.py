"""What a video file really holds, told by decoding it once."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from solarwm.data.video import count_frames
from solarwm.errors.types import SolarError


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFacts:
    """A readable video: its bytes, frames that decode, rate and size."""

    data: bytes
    frames: int
    fps: float
    width: int
    height: int


def probe_video(path: Path, place: str) -> VideoFacts:
    """The facts of a file. Raises SolarError `video.*` (exit 3), naming `place`: nothing there, no
    regular file, not decodable to its end, no frames, no rate."""
    if not path.is_file():
        what = "there is no video" if not path.exists() else "the video is not a regular file"
        raise SolarError("video.undecodable", what, where=place, why=str(path))
    data = path.read_bytes()
    frames = count_frames(data, sample_id=place)
    import av

    with av.open(io.BytesIO(data), mode="r") as container:
        stream = container.streams.video[0]
        rate = stream.average_rate or stream.base_rate
        size = (stream.codec_context.width, stream.codec_context.height)
    if not frames or not rate or min(size) < 1:
        why = f"{frames} frames, rate {rate}, {size[0]} x {size[1]}"
        raise SolarError("video.undecodable", "the video tells too little", where=place, why=why)
    return VideoFacts(data=data, frames=frames, fps=float(rate), width=size[0], height=size[1])
