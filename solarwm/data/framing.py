"""How a source picture becomes the canvas: cover resize, then a centre crop; one rule a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK_FRAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Size after the resize, and the corner of the crop, in pixels."""

    resized_height: int
    resized_width: int
    top: int
    left: int


def cover_wan(source_height: int, source_width: int, height: int, width: int) -> Cover:
    """The Wan rule: scale = max(H/h, W/w), both sides rounded half to even."""
    scale = max(height / source_height, width / source_width)
    return _centred(round(source_height * scale), round(source_width * scale), height, width)


def cover_h3(source_height: int, source_width: int, height: int, width: int) -> Cover:
    """The MiniMax-H3 rule: as Wan, but never smaller than the canvas."""
    scale = max(width / source_width, height / source_height)
    resized_height = max(height, round(source_height * scale))
    resized_width = max(width, round(source_width * scale))
    return _centred(resized_height, resized_width, height, width)


def cover_ltx(source_height: int, source_width: int, height: int, width: int) -> Cover:
    """The LTX rule: the longer side truncated, not rounded."""
    aspect = source_width / source_height
    if aspect > width / height:
        return _centred(height, int(height * aspect), height, width)
    return _centred(int(width / aspect), width, height, width)


def framed(pixels_NYX3: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Frames [N,Y,X,3] brought to [N,height,width,3] by the Wan rule.

    Bilinear between pixel centres without antialiasing, and only when the size differs.
    """
    import numpy as np

    source_height, source_width = pixels_NYX3.shape[1:3]
    cover = cover_wan(source_height, source_width, height, width)
    rows = slice(cover.top, cover.top + height)
    columns = slice(cover.left, cover.left + width)
    if (cover.resized_height, cover.resized_width) == (source_height, source_width):
        return np.ascontiguousarray(pixels_NYX3[:, rows, columns])
    low_y, high_y, part_y = _taps(source_height, cover.resized_height, rows)
    low_x, high_x, part_x = _taps(source_width, cover.resized_width, columns)
    out = np.empty((len(pixels_NYX3), height, width, 3), np.uint8)
    for first in range(0, len(pixels_NYX3), _CHUNK_FRAMES):
        block = pixels_NYX3[first : first + _CHUNK_FRAMES].astype(np.float32)
        tall = (
            block[:, low_y] * (1 - part_y)[:, None, None] + block[:, high_y] * part_y[:, None, None]
        )
        wide = tall[:, :, low_x] * (1 - part_x)[:, None] + tall[:, :, high_x] * part_x[:, None]
        out[first : first + len(block)] = np.rint(wide).astype(np.uint8)
    return out


def framed_ltx(pixels_NYX3: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float32]:
    """The LTX rule: bicubic with antialiasing, centre crop; fp32 [N,height,width,3] in 0..1."""
    import numpy as np
    import torch

    source_height, source_width = pixels_NYX3.shape[1:3]
    cover = cover_ltx(source_height, source_width, height, width)
    out = np.empty((len(pixels_NYX3), height, width, 3), np.float32)
    for first in range(0, len(pixels_NYX3), _CHUNK_FRAMES):
        block = torch.from_numpy(pixels_NYX3[first : first + _CHUNK_FRAMES])
        resized = torch.nn.functional.interpolate(
            block.permute(0, 3, 1, 2).float() / 255.0,
            size=(cover.resized_height, cover.resized_width),
            mode="bicubic",
            align_corners=False,
            antialias=True,
        ).clamp(0.0, 1.0)
        cropped = resized[
            :, :, cover.top : cover.top + height, cover.left : cover.left + width
        ].permute(0, 2, 3, 1)
        out[first : first + len(block)] = cropped.numpy()
    return out


def framed_h3(pixels_NYX3: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The MiniMax-H3 rule: Pillow's Lanczos to cover the canvas, centre crop; uint8."""
    source_height, source_width = pixels_NYX3.shape[1:3]
    cover = cover_h3(source_height, source_width, height, width)
    size = (cover.resized_width, cover.resized_height)
    box = (cover.left, cover.top, cover.left + width, cover.top + height)
    return _lanczos(pixels_NYX3, size, box)


def stretched_h3(pixels_NYX3: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The rule of MiniMax-H3 test anchors: Pillow's Lanczos to the canvas, without a crop; uint8."""
    return _lanczos(pixels_NYX3, (width, height), (0, 0, width, height))


def _lanczos(
    pixels_NYX3: NDArray[np.uint8], size: tuple[int, int], box: tuple[int, int, int, int]
) -> NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    frames: list[NDArray[np.uint8]] = []
    for pixels in pixels_NYX3:
        image = Image.fromarray(pixels)
        if image.size != size:
            image = image.resize(size, Image.Resampling.LANCZOS)
        frames.append(np.asarray(image.crop(box), np.uint8))
    return np.stack(frames)


def _centred(resized_height: int, resized_width: int, height: int, width: int) -> Cover:
    return Cover(
        resized_height=resized_height,
        resized_width=resized_width,
        top=(resized_height - height) // 2,
        left=(resized_width - width) // 2,
    )


def _taps(
    source: int, resized: int, cut: slice
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    import numpy as np

    centres = (np.arange(resized, dtype=np.float32)[cut] + 0.5) * np.float32(source / resized) - 0.5
    centres = np.maximum(centres, 0).astype(np.float32)
    low = np.minimum(centres.astype(np.intp), source - 1)
    high = np.minimum(low + 1, source - 1)
    return low, high, (centres - low).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Framing:
    """The rule of a family: where the crop lies (lenses follow it), and the frames it gives."""

    cover: Callable[[int, int, int, int], Cover]
    frame: Callable[[NDArray[np.uint8], int, int], NDArray[Any]]


WAN = Framing(cover_wan, framed)
LTX = Framing(cover_ltx, framed_ltx)
H3 = Framing(cover_h3, framed_h3)
