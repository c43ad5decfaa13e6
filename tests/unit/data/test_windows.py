"""Re-timing of clips by the nearest source frame."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solarwm.data.windows import frame_offsets


@pytest.mark.parametrize(("source", "output"), [(0, 0), (0, 16), (16, 0), (16, 16)])
def test_unknown_or_equal_rates_take_frame_after_frame(source, output) -> None:
    assert frame_offsets(4, source_fps=source, output_fps=output) == (0, 1, 2, 3)


def test_halves_round_to_even_and_slow_sources_repeat() -> None:
    assert frame_offsets(5, source_fps=24, output_fps=16) == (0, 2, 3, 4, 6)
    assert frame_offsets(5, source_fps=8, output_fps=16) == (0, 0, 1, 2, 2)


@given(st.integers(1, 60), st.sampled_from([8, 12, 16, 24, 25, 30, 48, 60]))
def test_offsets_are_the_nearest_frames_and_never_go_back(frames, source) -> None:
    found = frame_offsets(frames, source_fps=source, output_fps=16)
    exact = [round(Fraction(k * source, 16)) for k in range(frames)]
    assert list(found) == exact
    assert sorted(found) == list(found)
