"""Generated frames and cameras as files: H.264 in MP4, side-by-side comparisons, camera arrays.

Shapes: N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

# One thread and no lookahead: the lookahead reads past the edge of small pictures, and the bytes
# would depend on what memory held before.
_ENCODING = {
    "crf": "14",
    "preset": "veryfast",
    "flags": "+bitexact",
    "threads": "1",
    "x264-params": "bframes=0:weightp=0:mbtree=0:rc-lookahead=0",
}


def write_mp4(path: Path, frames_NYX3: np.ndarray, fps: float) -> None:
    """Write uint8 RGB frames as H.264, yuv420p, index first (faststart). Equal frames give equal
    bytes for one build of x264. Height and width must be even."""
    import av

    _check_frames(frames_NYX3)
    height, width = frames_NYX3.shape[1:3]
    muxing = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(str(path), "w", format="mp4", options=muxing) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.options = dict(_ENCODING)
        for picture in frames_NYX3:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def read_mp4(path: Path) -> np.ndarray:
    """Every frame of a video as uint8 RGB [N,Y,X,3]."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


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
