"""Exact frames of one encoded video, decoded in order on one thread."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_TIMEOUT_S = 120.0


def decode_frames(
    data: bytes,
    indices: Sequence[int],
    *,
    sample_id: str,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
) -> NDArray[np.uint8]:
    """The frames with the given numbers, in that order: RGB uint8 [N,Y,X,3] at the stored size.

    `indices` ascend and may repeat. Raises SolarError (exit 3) `video.undecodable`,
    `video.too-few-frames` or `video.timeout`, each naming the sample.
    """
    import numpy as np

    deadline = clock() + timeout_s
    last = indices[-1]
    places: dict[int, list[int]] = {}
    for place, index in enumerate(indices):
        places.setdefault(index, []).append(place)
    # One block that every frame is written into: memory that is touched twice costs as much as decoding.
    frames: NDArray[np.uint8] | None = None
    count = 0
    for count, frame in enumerate(_decoded(data, sample_id), start=1):
        if here := places.get(count - 1):
            picture = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
            if frames is None:
                frames = np.empty((len(indices), *picture.shape), np.uint8)
            if picture.shape != frames.shape[1:]:
                raise _fault(
                    "video.undecodable", "the picture size changes within the video", sample_id
                )
            for place in here:
                frames[place] = picture
        if count > last:
            break
        if clock() > deadline:
            raise _fault(
                "video.timeout",
                "decoding the video took too long",
                sample_id,
                why=f"{count} of {last + 1} frames in {timeout_s:g} s",
            )
    if frames is None or count <= last:
        raise _too_few(sample_id, last, count)
    return frames


def iterate_frames(
    data: bytes, indices: Sequence[int], *, sample_id: str
) -> Iterator[NDArray[np.uint8]]:
    """The same frames one by one [Y,X,3], decoded as they are asked for. There is no time limit: the
    taker sets the pace."""
    import numpy as np

    wanted = iter(indices)
    index = next(wanted, None)
    count = 0
    for count, frame in enumerate(_decoded(data, sample_id), start=1):
        if index == count - 1:
            picture = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
            while index == count - 1:
                yield picture
                index = next(wanted, None)
        if index is None:
            return
    raise _too_few(sample_id, index or 0, count)


def count_frames(data: bytes, *, sample_id: str) -> int:
    """How many frames can be decoded; SolarError `video.undecodable` for a damaged video."""
    return sum(1 for _ in _decoded(data, sample_id))


def _decoded(data: bytes, sample_id: str) -> Iterator[Any]:
    """The frames one by one, single threaded."""
    try:
        import av
        from av.error import FFmpegError
    except ImportError as error:
        raise SolarError(
            "data.extra-missing",
            "PyAV is needed to decode video",
            why=str(error),
            fixes=["pip install 'solarwm[data]'"],
        ) from None
    count = 0
    try:
        with av.open(io.BytesIO(data), mode="r") as container:
            if not container.streams.video:
                raise _fault("video.undecodable", "the video has no picture stream", sample_id)
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            for count, frame in enumerate(container.decode(stream), start=1):
                if frame.is_corrupt:
                    raise _fault(
                        "video.undecodable",
                        "a frame of the video is damaged",
                        sample_id,
                        why=f"frame {count - 1}",
                    )
                yield frame
    except FFmpegError as error:
        said = error.strerror or type(error).__name__
        why = f"{said} after {count} frames" if count else said
        raise _fault(
            "video.undecodable", "the video cannot be decoded", sample_id, why=why
        ) from None


def _too_few(sample_id: str, last: int, count: int) -> SolarError:
    return SolarError(
        "video.too-few-frames",
        f"the video of sample {sample_id!r} has too few frames",
        where=sample_id,
        why=f"frame {last} is needed, {count} frames could be decoded",
        fixes=["correct num_frames in the index row", "set data.pixel_frames to a shorter clip"],
        context={"sample_id": sample_id, "needed": last + 1, "found": count},
    )


def _fault(code: str, headline: str, sample_id: str, *, why: str = "") -> SolarError:
    return SolarError(code, headline, where=sample_id, why=why, context={"sample_id": sample_id})
