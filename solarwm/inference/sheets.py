"""A comparison sheet of a pass: every clip at a few moments, truth left and clip right, in one picture.

Shapes: Y X pixel height and width.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from solarwm.inference.transaction import GenerationStore, create_same, slot_name

SHEET = "sheet.png"
MOST_CLIPS = 24
MOMENTS = 5
CELL_WIDTH = 256
_GAP = 2


def write_sheet(store: GenerationStore, pass_name: str) -> Path | None:
    """Write `<pass>/sheet.png` of a whole pass: a row a clip in slot order, the first 24 of them, at five
    moments from the first frame to the last. Equal clips give equal bytes. None without clips."""
    from PIL import Image

    rows = [
        np.concatenate(list(_cells(store, pass_name, manifest)), axis=1)
        for manifest in store.manifests(pass_name)[:MOST_CLIPS]
    ]
    if not rows:
        return None
    width = max(row.shape[1] for row in rows)
    sheet = np.concatenate(
        [np.pad(row, ((0, _GAP), (0, width - row.shape[1]), (0, 0))) for row in rows]
    )
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, format="PNG")
    path = store.pass_root(pass_name) / SHEET
    create_same(path, buffer.getvalue())
    return path


def moments(frames: int) -> tuple[int, ...]:
    """Frame numbers shown of a clip: evenly from the first to the last, each once."""
    steps = max(1, min(MOMENTS, frames) - 1)
    return tuple(dict.fromkeys(round(i * (frames - 1) / steps) for i in range(steps + 1)))


def _cells(
    store: GenerationStore, pass_name: str, manifest: dict[str, Any]
) -> Iterator[np.ndarray]:
    from PIL import Image

    folder = store.pass_root(pass_name) / slot_name(manifest["case"]["slot"])
    pair = folder / "compare.mp4"
    for picture_YX3 in _pictures(
        pair if pair.is_file() else folder / "video.mp4", moments(manifest["shape"][0])
    ):
        height, width = picture_YX3.shape[:2]
        size = (CELL_WIDTH, max(1, round(height * CELL_WIDTH / width)))
        cell = np.asarray(Image.fromarray(picture_YX3).resize(size, Image.Resampling.BILINEAR))
        yield np.pad(cell, ((0, 0), (0, _GAP), (0, 0)))


def _pictures(path: Path, numbers: Sequence[int]) -> Iterator[np.ndarray]:
    import av

    wanted = set(numbers)
    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                yield frame.to_ndarray(format="rgb24")
            if number == numbers[-1]:
                return
