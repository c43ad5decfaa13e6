from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from solarwm.reports.facts import read_generation, read_training
from solarwm.reports.summary import course_table, demand_table, quality_table


def _text(table):
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def test_the_terminal_summary_tells_course_and_figures(training_root, generation_root):
    assert "120" in _text(course_table(read_training(training_root)))
    generation = read_generation(generation_root)
    assert "17.00" in _text(quality_table([generation]))
    assert "+2.00 dB" in _text(demand_table([generation]))


def test_reports_import_neither_torch_nor_numpy():
    code = (
        "import sys, solarwm.reports.html, solarwm.reports.summary, solarwm.reports.gif\n"
        "print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_gif_loops_at_the_speed_of_the_video(tmp_path):
    pytest.importorskip("av")
    image = pytest.importorskip("PIL.Image")
    from solarwm.inference.video import write_mp4
    from solarwm.reports.gif import write_gif

    frames = np.zeros((8, 64, 96, 3), dtype=np.uint8)
    frames[:, :, :, 0] = np.arange(8)[:, None, None] * 30
    frames[:, :, :48, 1] = 200
    write_mp4(tmp_path / "video.mp4", frames, 16)
    write_gif(tmp_path / "video.mp4", tmp_path / "video.gif", scale=2, every=2)
    with image.open(tmp_path / "video.gif") as gif:
        assert gif.size == (192, 128)
        assert gif.n_frames == 4
        assert gif.info["duration"] == pytest.approx(125, abs=10)
        assert gif.info["loop"] == 0
