"""Raw samples from row to clip, and every fault of their cameras, manifests and lengths."""

from __future__ import annotations

import json

import numpy as np
import pytest

from solarwm.data.cameras import CameraRules
from solarwm.data.index import read_index
from solarwm.data.records import SKIPPED_CODES, RawClip, read_cameras, read_clip
from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError

CUT = {"start_frame": 2, "frames": 5, "height": 32, "width": 48, "fps": 16.0}


def clip(world, *, members=None, row=None, rules=None, read=read_clip, **cut) -> RawClip:
    world.shard(members or world.members())
    index = read_index(world.index(row or world.row()))
    with ShardReader(world.root) as reader:
        return read(reader, index.rows[0], rules=rules or CameraRules(), **(CUT | cut))


def refused(world, **options) -> SolarError:
    with pytest.raises(SolarError) as caught:
        clip(world, **options)
    assert caught.value.exit_code == 3
    assert caught.value.context["sample_id"] == "demo/a"
    return caught.value


def levels(found: RawClip) -> list[int]:
    return [round((float(frame.mean()) - 8) / 16) for frame in found.pixels_NYX3]


def test_a_clip_has_the_frames_poses_and_words_of_its_row(world) -> None:
    found = clip(world)
    assert (found.sample_id, found.key, found.caption) == ("demo/a", "a", "from the row")
    assert found.frame_indices == (2, 3, 4, 5, 6)
    assert levels(found) == [2, 3, 4, 5, 6]
    assert np.array_equal(found.c2w_N44, world.track()[2:7])
    assert found.c2w_N44.dtype == np.float32
    assert (found.fps, found.source_num_frames) == (16.0, 12)


def test_a_faster_source_is_retimed(world) -> None:
    manifest = world.manifest()
    manifest["video"]["fps"] = 32.0
    members = world.members(**{"manifest.json": json.dumps(manifest).encode()})
    found = clip(world, members=members, row=world.row(fps=32.0))
    assert found.frame_indices == (2, 4, 6, 8, 10)
    assert levels(found) == [2, 4, 6, 8, 10]
    assert found.fps == 16.0


def test_pictures_are_brought_to_the_canvas(world) -> None:
    assert clip(world, height=64, width=64).pixels_NYX3.shape == (5, 64, 64, 3)


def test_the_caption_falls_back_to_the_manifest_then_to_nothing(world) -> None:
    assert clip(world, row=world.row(caption=None)).caption == "from the manifest"
    manifest = world.manifest() | {"prompt": None}
    members = world.members(**{"manifest.json": json.dumps(manifest).encode()})
    assert clip(world, members=members, row=world.row(caption=None)).caption == ""


def test_an_inline_manifest_wins(world) -> None:
    members = world.members(**{"manifest.json": b"broken"})
    row = world.row(manifest=world.manifest(), manifest_member=None)
    assert clip(world, members=members, row=row).caption == "from the row"


def test_cameras_alone_equal_those_of_the_clip(world) -> None:
    whole, cameras = clip(world), clip(world, read=read_cameras)
    assert np.array_equal(whole.c2w_N44, cameras.c2w_N44)
    assert whole.frame_indices == cameras.frame_indices
    assert not hasattr(cameras, "pixels_NYX3")


def test_stored_world_to_camera_is_turned_around(world) -> None:
    stored = np.linalg.inv(world.track()).astype(np.float32)
    members = world.members(
        **{
            "camera.npz": world.npz(w2c=stored),
            "manifest.json": json.dumps(world.manifest(array_key="w2c")).encode(),
        }
    )
    found = clip(world, members=members, rules=CameraRules(array_key="w2c"))
    np.testing.assert_allclose(found.c2w_N44, world.track()[2:7], atol=1e-6)


def test_the_fixed_lens_is_the_default_and_the_source_lens_an_option(world) -> None:
    assert clip(world).intrinsics_33[0, 0] == pytest.approx(0.505050505)
    source = CameraRules(use_source_lens=True)
    lens = clip(world, rules=source, height=32, width=32).intrinsics_33
    np.testing.assert_allclose(lens[0], [40 / 32, 0, (24 - 8) / 32])
    np.testing.assert_allclose(lens[1], [0, 42 / 32, 0.5])
    cameras = clip(world, rules=source, height=32, width=32, read=read_cameras)
    assert np.array_equal(lens, cameras.intrinsics_33)


@pytest.mark.parametrize("used", [True, False], ids=["source lens", "fixed lens"])
def test_a_lens_that_is_not_finite_is_refused_with_its_frame_used_or_not(world, used) -> None:
    lens = np.tile([40.0, 42.0, 24.0, 16.0], (12, 1))
    lens[5, 2] = np.nan
    members = world.members(**{"intrinsics.npy": world.npy(lens)})
    fault = refused(world, members=members, rules=CameraRules(use_source_lens=used))
    assert (fault.code, fault.exit_code, fault.context["frame"]) == ("camera.lens", 3, 5)


def test_a_lens_that_zooms_is_refused_with_its_frame(world) -> None:
    lens = np.tile([40.0, 42.0, 24.0, 16.0], (12, 1))
    lens[4:, 0] = 50
    members = world.members(**{"intrinsics.npy": world.npy(lens)})
    fault = refused(world, members=members, rules=CameraRules(use_source_lens=True))
    assert (fault.code, fault.context["frame"]) == ("camera.lens", 4)


def spoiled(world, change) -> dict[str, bytes]:
    poses = world.track()
    return world.members(**{"camera.npz": world.npz(c2w=change(poses))})


def set_at(frame, row, column, value):
    def change(poses):
        poses[frame, row, column] = value
        return poses

    return change


@pytest.mark.parametrize(
    ("change", "code", "frame"),
    [
        (set_at(3, 0, 3, np.nan), "camera.not-finite", 3),
        (set_at(4, 0, 3, np.inf), "camera.not-finite", 4),
        (set_at(5, 0, 0, 1.5), "camera.not-rigid", 5),
        (set_at(6, 0, 0, -1), "camera.not-rigid", 6),
        (set_at(2, 3, 0, 0.1), "camera.not-rigid", 2),
        (lambda poses: np.swapaxes(poses, 1, 2), "camera.not-rigid", 1),
        (set_at(4, 0, 3, 1e4), "camera.guard", 4),
        (lambda poses: poses[:, :3], "camera.shape", None),
        (lambda poses: poses[:0], "camera.shape", None),
        (lambda poses: poses[:9], "camera.manifest", None),
        (lambda poses: poses.astype(np.float64), "camera.manifest", None),
        (lambda poses: poses.astype(np.int64), "camera.shape", None),
    ],
)
def test_a_bad_track_is_told_with_its_frame(world, change, code, frame) -> None:
    fault = refused(world, members=spoiled(world, change))
    assert (fault.code, fault.context.get("frame")) == (code, frame)
    if frame is not None:
        assert f"frame {frame}" in fault.why


def test_only_a_guard_may_be_skipped() -> None:
    assert frozenset({"camera.guard"}) == SKIPPED_CODES


def test_guards_can_be_turned_off(world) -> None:
    rules = CameraRules(max_rel_translation=None, max_camera_abs=None)
    assert clip(world, members=spoiled(world, set_at(4, 0, 3, 1e3)), rules=rules)


def test_a_track_beyond_the_precision_of_its_numbers_is_refused_even_without_guards(world) -> None:
    rules = CameraRules(max_rel_translation=None, max_camera_abs=None)
    members = spoiled(world, set_at(4, 0, 3, 1e4))
    with pytest.raises(SolarError, match="moves beyond the limits") as told:
        clip(world, members=members, rules=rules)
    assert told.value.context["frame"] == 4


@pytest.mark.parametrize(
    ("camera", "field"),
    [
        ({"convention": "opengl"}, "convention"),
        ({"dtype": "float64"}, "dtype"),
        ({"finite": 1}, "finite"),
        ({"magnitude_audit_seconds": 5.0}, "magnitude_audit_seconds"),
        ({"max_camera_abs": 30.0}, "max_camera_abs"),
        ({"max_rel_translation": None}, "max_rel_translation"),
        ({"shape": [11, 4, 4]}, "shape"),
        ({"array_key": "w2c"}, "array_key"),
    ],
)
def test_a_manifest_that_speaks_of_another_camera_is_refused(world, camera, field) -> None:
    manifest = json.dumps(world.manifest(**camera)).encode()
    fault = refused(world, members=world.members(**{"manifest.json": manifest}))
    assert fault.code == "camera.manifest"
    assert field in fault.headline


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"camera": 3}'])
def test_a_broken_manifest_is_refused(world, data) -> None:
    fault = refused(world, members=world.members(**{"manifest.json": data}))
    assert fault.code == "camera.manifest"


def test_a_camera_file_without_the_array_is_refused(world) -> None:
    members = world.members(**{"camera.npz": world.npz(w2c=world.track())})
    fault = refused(world, members=members)
    assert fault.code == "camera.missing-array"
    assert "w2c" in fault.why


@pytest.mark.parametrize("kind", ["pickle", "text", "cut", "npy"])
def test_an_unreadable_camera_file_is_refused(world, kind) -> None:
    whole = world.npz(c2w=world.track())
    data = {
        "pickle": world.npz(c2w=np.array([{"a": 1}], dtype=object)),
        "text": b"hello",
        "cut": whole[: len(whole) // 2],
        "npy": world.npy(world.track()),
    }[kind]
    assert refused(world, members=world.members(**{"camera.npz": data})).code == "camera.unreadable"


def test_a_failed_estimate_is_refused(world) -> None:
    data = world.npz(c2w=world.track(), vipe_status=np.array("lost"))
    fault = refused(world, members=world.members(**{"camera.npz": data}))
    assert fault.code == "camera.status"
    sound = world.npz(c2w=world.track(), vipe_status=np.array("ok"))
    assert clip(world, members=world.members(**{"camera.npz": sound}))


def test_a_clip_beyond_the_source_is_refused_with_the_numbers(world) -> None:
    fault = refused(world, start_frame=8)
    assert fault.code == "index.too-few-frames"
    assert "12" in fault.why


def test_a_video_shorter_than_its_row_is_refused(world) -> None:
    members = world.members(**{"video.mp4": world.encoded(world.pictures(6))})
    fault = refused(world, members=members)
    assert (fault.code, fault.context["found"]) == ("video.too-few-frames", 6)


def test_rates_that_disagree_are_refused(world) -> None:
    assert refused(world, row=world.row(fps=30.0)).code == "index.bad-field"


@pytest.mark.parametrize("member", ["video_member", "camera_member", "manifest_member"])
def test_a_row_without_a_needed_member_is_refused(world, member) -> None:
    fault = refused(world, row=world.row(**{member: None}))
    assert fault.code == "index.bad-field"
    assert member in fault.headline
