"""Exact frames of small videos that tell their own frame numbers."""

from __future__ import annotations

import numpy as np
import pytest

from solarwm.data.video import decode_frames
from solarwm.errors.types import SolarError


def numbers(frames: np.ndarray) -> list[int]:
    return [round((float(frame.mean()) - 8) / 16) for frame in frames]


def refused(data: bytes, indices, **options) -> SolarError:
    with pytest.raises(SolarError) as caught:
        decode_frames(data, indices, sample_id="demo/a", **options)
    assert caught.value.exit_code == 3
    assert caught.value.context["sample_id"] == "demo/a"
    return caught.value


def test_the_asked_frames_come_back_in_order_with_repeats(world) -> None:
    data = world.encoded(world.pictures())
    found = decode_frames(data, (2, 3, 3, 7, 11), sample_id="demo/a")
    assert (found.shape, found.dtype) == ((5, 32, 48, 3), np.uint8)
    assert numbers(found) == [2, 3, 3, 7, 11]


def test_too_few_frames_name_the_sample_and_both_counts(world) -> None:
    fault = refused(world.encoded(world.pictures(8)), (0, 8))
    assert fault.code == "video.too-few-frames"
    assert (fault.context["needed"], fault.context["found"]) == (9, 8)


@pytest.mark.parametrize("data", [b"", b"not a video" * 100])
def test_what_is_no_video_is_undecodable(data) -> None:
    assert refused(data, (0,)).code == "video.undecodable"


def test_a_cut_video_is_refused(world) -> None:
    data = world.encoded(world.pictures())
    assert refused(data[: len(data) // 2], range(12)).code in {
        "video.undecodable",
        "video.too-few-frames",
    }


def test_slow_decoding_ends_in_time(world) -> None:
    ticks = iter(range(0, 1000, 10))
    fault = refused(
        world.encoded(world.pictures()), range(12), timeout_s=25.0, clock=lambda: next(ticks)
    )
    assert fault.code == "video.timeout"
