from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from solarwm.inference.sheets import CELL_WIDTH, moments, write_sheet
from solarwm.inference.transaction import GenerationStore
from solarwm.inference.video import write_mp4


@pytest.mark.parametrize(
    ("frames", "expected"),
    [(33, (0, 8, 16, 24, 32)), (3, (0, 1, 2)), (1, (0,)), (10_000, (0, 2500, 5000, 7499, 9999))],
)
def test_moments_run_from_the_first_frame_to_the_last(frames, expected) -> None:
    assert moments(frames) == expected


def test_a_sheet_shows_every_clip_at_its_moments_and_is_written_once(tmp_path) -> None:
    store = GenerationStore(tmp_path / "generation", family="wan22_ti2v_5b")
    for slot, level in enumerate((40, 200)):
        folder = store.slot_path("right", slot)
        folder.mkdir(parents=True)
        frames = np.full((9, 32, 64, 3), level, np.uint8)
        frames[4:] = 120
        write_mp4(folder / "compare.mp4", frames, 16.0)
        manifest = {"case": {"slot": slot}, "shape": [9, 32, 32, 3]}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    path = write_sheet(store, "right")
    assert path is not None
    sheet = np.asarray(Image.open(path)).astype(int)
    row, column = CELL_WIDTH // 2 + 2, CELL_WIDTH + 2
    assert sheet.shape == (2 * row, 5 * column, 3)
    shown = sheet[row // 2 :: row, column // 2 :: column, 0]
    assert np.abs(shown - [[40, 40, 120, 120, 120], [200, 200, 120, 120, 120]]).max() <= 3
    before = path.read_bytes()
    assert write_sheet(store, "right") == path
    assert path.read_bytes() == before
    assert write_sheet(store, "none") is None
