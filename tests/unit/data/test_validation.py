"""A whole data set looked at: every fault is found, none twice, nothing dropped in silence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from solarwm.data.validation import ClipReport, Demands, validate
from solarwm.data.windows import frame_offsets, retimed_frames


def look(world, index, **demands):
    clips: list[ClipReport] = []
    report = validate(index, world.root, Demands(**demands), on_clip=clips.append)
    return report, clips


def codes(report) -> list[str]:
    return [fault.code for fault in report.faults]


def timed(world, key: str, frames: int, fps: float) -> tuple[dict, dict]:
    manifest = world.manifest(frames)
    manifest["video"]["fps"] = fps
    members = world.members(
        key,
        **{
            "camera.npz": world.npz(c2w=world.track(1).repeat(frames, axis=0)),
            "manifest.json": json.dumps(manifest).encode(),
        },
    )
    return members, world.row(key, num_frames=frames, fps=fps)


def test_a_sound_set_has_no_faults(world) -> None:
    world.shard(world.members("a") | world.members("b"))
    report, clips = look(world, world.index(world.row("a"), world.row("b")), decode=True)
    assert codes(report) == []
    assert (report.num_rows, report.num_kept, report.num_shards) == (2, 2, 1)
    assert [clip.motion for clip in clips] == ["moves forward 2.8"] * 2


def test_every_bad_row_is_listed_with_its_own_code(world) -> None:
    poses = world.track()
    poses[3, 0, 3] = np.nan
    world.shard(
        world.members("a")
        | world.members("b", **{"camera.npz": world.npz(c2w=poses)})
        | world.members("c", **{"video.mp4": world.encoded(world.pictures(6))})
        | world.members("d")
    )
    index = world.index(
        world.row("a"),
        world.row("b"),
        world.row("c"),
        world.row("d", video_member="d.nothing"),
        world.row("e", fps="x"),
        world.row("a"),
    )
    report, clips = look(world, index, decode=True)
    assert codes(report) == [
        "camera.not-finite",
        "video.too-few-frames",
        "shard.missing-member",
        "index.bad-field",
        "index.duplicate-id",
    ]
    assert (report.num_rows, report.num_kept) == (6, 1)
    assert [clip.dropped for clip in clips if clip.dropped] == codes(report)[:3]


def test_a_dead_shard_is_listed_once_and_drops_all_its_rows(world) -> None:
    world.shard(world.members("a") | world.members("b"))
    path = world.root / "raw/s-0.tar"
    path.write_bytes(path.read_bytes()[:-5000])
    world.shard(world.members("c"), "raw/s-1.tar")
    index = world.index(world.row("a"), world.row("b"), world.row("c", shard="raw/s-1.tar"))
    report, clips = look(world, index)
    assert codes(report) == ["shard.truncated"]
    assert report.faults[0].context["shard"] == "raw/s-0.tar"
    assert [bool(clip.dropped) for clip in clips] == [True, True, False]
    assert report.num_kept == 1


def test_short_clips_say_what_retiming_left_of_them(world) -> None:
    kept = {"a": 60, "b": 65, "c": 113}
    members, rows = {}, []
    for key, frames in kept.items():
        found, row = timed(world, key, frames, 24.0)
        members |= found
        rows.append(row)
    world.shard(members)
    report, clips = look(world, world.index(*rows), frames=45, fps=16.0)
    assert [clip.frames for clip in clips] == [40, 44, 76]
    assert codes(report) == ["index.too-few-frames"] * 2
    assert "60 frames at 24 fps are 40 frames at 16 fps; 45 are needed" in report.faults[0].why
    assert [clip.dropped for clip in clips] == ["index.too-few-frames"] * 2 + [""]


@pytest.mark.parametrize("source", [0, 8, 15, 16, 23.976, 24, 25, 30, 60])
def test_retimed_length_is_the_longest_clip_that_fits(source) -> None:
    for num_frames in range(1, 130):
        count = retimed_frames(num_frames, source_fps=source, output_fps=16)
        assert frame_offsets(count, source_fps=source, output_fps=16)[-1] < num_frames
        assert frame_offsets(count + 1, source_fps=source, output_fps=16)[-1] >= num_frames


def test_jobs_change_nothing_and_a_limit_looks_at_the_first_rows(world) -> None:
    for number, keys in enumerate(("ab", "cd")):
        members = {}
        for key in keys:
            members |= world.members(key)
        world.shard(members, name=f"s{number}.tar")
    rows = [
        world.row("a", shard="s0.tar"),
        world.row("c", shard="s1.tar", video_member="c.nothing"),
        world.row("b", shard="s0.tar"),
        world.row("d", shard="s1.tar", camera_member="d.nothing"),
    ]
    index = world.index(*rows)
    alone: list[ClipReport] = []
    one = validate(index, world.root, Demands(), on_clip=alone.append)
    shared: list[ClipReport] = []
    two = validate(index, world.root, Demands(), jobs=2, on_clip=shared.append)
    assert [clip.row for clip in alone] == [1, 2, 3, 4]
    assert shared == alone
    assert [str(fault) for fault in two.faults] == [str(fault) for fault in one.faults]
    assert codes(one) == ["shard.missing-member"] * 2
    few = validate(index, world.root, Demands(), limit=2)
    assert (few.num_rows, len(few.faults)) == (2, 1)
