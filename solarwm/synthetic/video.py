from __future__ import annotations

import io
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_GOP = 16

# One thread, and no lookahead: with small pictures its weight search reads past the edge of the
# picture, and the stream then depends on what memory held before.
_OPTIONS = {
    "crf": "12",
    "preset": "medium",
    "flags": "+bitexact",
    "threads": "1",
    "x264-params": "bframes=0:weightp=0:mbtree=0:rc-lookahead=0",
}


def encode_mp4(pixels: NDArray[np.uint8], *, fps: float) -> bytes:
    """An MP4 file with one H.264 yuv420p stream of these u8 RGB frames [T,H,W,3].

    Height and width must be even. The same frames give the same bytes for one build of x264.
    """
    import av

    target = io.BytesIO()
    with av.open(target, mode="w", format="mp4", options={"fflags": "+bitexact"}) as container:
        rate = Fraction(fps).limit_denominator(1001)
        stream = container.add_stream("libx264", rate=rate)
        stream.height, stream.width = pixels.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.gop_size = _GOP
        stream.codec_context.thread_count = 1
        stream.options = dict(_OPTIONS)
        for picture in pixels:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target.getvalue()
