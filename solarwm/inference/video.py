"""Generated frames and cameras as files: H.264 in MP4, side-by-side comparisons, camera arrays.

Shapes: N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EROFS
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from solarwm.errors.types import SolarError
from solarwm.storage.durable import storage_fault

# One thread and no lookahead: the lookahead reads past the edge of small pictures, and the bytes
# would depend on what memory held before.
_ENCODING = {
    "crf": "14",
    "preset": "veryfast",
    "flags": "+bitexact",
    "threads": "1",
    "x264-params": "bframes=0:weightp=0:mbtree=0:rc-lookahead=0",
}


class VideoWriter:
    """H.264, yuv420p, index first (faststart), fed as frames come: what it holds does not grow with the
    video. A block that raises leaves a file to be thrown away.

    Equal frames give equal bytes for one build of x264, in whatever pieces they come. Raises
    `inference.video` (exit 3) where the encoder fails.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._rate = Fraction(fps).limit_denominator(1001)
        self._container: Any = None
        self._stream: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def write(self, frames_NYX3: np.ndarray) -> None:
        """The next uint8 RGB frames; height and width are even and stay."""
        import av

        _check_frames(frames_NYX3)
        with self._faults():
            if self._stream is None:
                self._open(*frames_NYX3.shape[1:3])
            stream: Any = self._stream
            for picture in frames_NYX3:
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
                self._container.mux(stream.encode(frame))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._container is None:
            return
        with suppress(Exception) if kind is not None else self._faults():
            if kind is None:
                self._container.mux(self._stream.encode(None))
            self._container.close()

    def _open(self, height: int, width: int) -> None:
        import av

        muxing = {"movflags": "+faststart", "fflags": "+bitexact"}
        self._container = av.open(str(self._path), "w", format="mp4", options=muxing)
        stream: Any = self._container.add_stream("libx264", rate=self._rate)
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.options = dict(_ENCODING)
        self._stream = stream

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from av.error import FFmpegError

        try:
            yield
        except FFmpegError as error:
            if error.errno in (ENOSPC, EDQUOT, EIO, EROFS, EACCES, EFBIG):
                raise storage_fault(OSError(error.errno, error.strerror), self._path) from error
            raise SolarError(
                "inference.video",
                f"{self._path.name} could not be encoded",
                where=str(self._path),
                why=error.strerror or type(error).__name__,
            ) from error


def write_mp4(path: Path, frames_NYX3: np.ndarray, fps: float) -> None:
    """A whole video at once, see `VideoWriter`."""
    with VideoWriter(path, fps) as writer:
        writer.write(frames_NYX3)


def read_mp4(path: Path) -> np.ndarray:
    """Every frame of a video as uint8 RGB [N,Y,X,3]."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def read_blocks(path: Path, size: int) -> Iterator[np.ndarray]:
    """The same frames, `size` at a time and fewer at the end."""
    import av

    with av.open(str(path)) as container:
        block: list[np.ndarray] = []
        for frame in container.decode(video=0):
            block.append(frame.to_ndarray(format="rgb24"))
            if len(block) == size:
                yield np.stack(block)
                block = []
        if block:
            yield np.stack(block)


def side_by_side(truth_NYX3: np.ndarray, generated_NYX3: np.ndarray) -> np.ndarray:
    """Ground truth left, generated right, as many frames as the shorter of the two has."""
    _check_frames(truth_NYX3)
    _check_frames(generated_NYX3)
    frames = min(len(truth_NYX3), len(generated_NYX3))
    return np.concatenate([truth_NYX3[:frames], generated_NYX3[:frames]], axis=2)


def write_cameras(
    folder: Path,
    c2w_N44: np.ndarray,
    *,
    viewmats_F44: np.ndarray,
    intrinsics_33: np.ndarray,
    frame_indices: tuple[int, ...],
    fps: float,
) -> tuple[str, ...]:
    """Write `camera.npy` (float64 absolute camera-to-world [N,4,4]) and `camera.npz` (the same with
    what the model saw: relative world-to-camera per latent, normalised intrinsics, source frames);
    gives their names."""
    track = np.ascontiguousarray(c2w_N44, dtype=np.float64)
    if track.ndim != 3 or track.shape[1:] != (4, 4) or not np.isfinite(track).all():
        raise ValueError(f"a camera track is finite [N,4,4], got {track.shape}")
    np.save(folder / "camera.npy", track, allow_pickle=False)
    np.savez(
        folder / "camera.npz",
        c2w=track,
        relative_w2c=np.asarray(viewmats_F44, dtype=np.float32),
        intrinsics=np.asarray(intrinsics_33, dtype=np.float32),
        frame_indices=np.asarray(frame_indices, dtype=np.int64),
        fps=np.float64(fps),
    )
    return ("camera.npy", "camera.npz")


def _check_frames(frames_NYX3: np.ndarray) -> None:
    if frames_NYX3.ndim != 4 or frames_NYX3.shape[3] != 3 or frames_NYX3.dtype != np.uint8:
        raise ValueError(f"frames are uint8 [N,Y,X,3], got {frames_NYX3.dtype} {frames_NYX3.shape}")
    if frames_NYX3.shape[1] % 2 or frames_NYX3.shape[2] % 2:
        raise ValueError(f"H.264 needs an even height and width, got {frames_NYX3.shape[1:3]}")
