"""Camera files of other tools: one known path, written in every format, comes back the same."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from solarwm.data.imports.tracks import kind_of, read_cameras
from solarwm.errors.types import SolarError

COUNT = 6


def path_of(count: int = COUNT) -> np.ndarray:
    """Camera-to-world: forward along z, turning right, rising a little. Built from angles alone."""
    poses = np.tile(np.eye(4), (count, 1, 1))
    for i in range(count):
        c, s = np.cos(0.1 * i), np.sin(0.1 * i)
        poses[i, :3, :3] = [[c, 0, s], [0, 1, 0], [-s, 0, c]]
        poses[i, :3, 3] = [0.05 * i, -0.02 * i, 0.2 * i]
    return poses


def quaternions(poses: np.ndarray) -> np.ndarray:
    """Scalar first, of rotations about y by less than half a turn."""
    half = 0.5 * np.arctan2(poses[:, 0, 2], poses[:, 0, 0])
    zero = np.zeros_like(half)
    return np.stack([np.cos(half), zero, np.sin(half), zero], axis=1)


def write(folder: Path, kind: str) -> Path:
    c2w = path_of()
    w2c = np.linalg.inv(c2w)
    q, t = quaternions(w2c), w2c[:, :3, 3]
    if kind == "re10k":
        rows = ["https://example.com/watch"]
        for i, pose in enumerate(w2c):
            head = [i * 62500, 0.5, 0.9, 0.5, 0.5, 0, 0]
            rows.append(" ".join(map(repr, [*head, *pose[:3].flatten().tolist()])))
        (folder / "a.txt").write_text("\n".join(rows) + "\n")
        return folder / "a.txt"
    if kind == "tum":
        rows = ["# timestamp tx ty tz qx qy qz qw"]
        for i, (pose, (w, x, y, z)) in enumerate(zip(c2w, quaternions(c2w), strict=True)):
            rows.append(" ".join(map(repr, [i / 16, *pose[:3, 3].tolist(), x, y, z, w])))
        (folder / "a.txt").write_text("\n".join(rows).replace("np.float64", "") + "\n")
        text = (folder / "a.txt").read_text().replace("(", "").replace(")", "")
        (folder / "a.txt").write_text(text)
        return folder / "a.txt"
    if kind == "kitti":
        rows = [" ".join(map(repr, pose[:3].flatten().tolist())) for pose in c2w]
        (folder / "a.txt").write_text("\n".join(rows))
        return folder / "a.txt"
    if kind == "nerf":
        stored = c2w @ np.diag([1.0, -1.0, -1.0, 1.0])
        applied = np.array([[1.0, 0, 0, 0], [0, 0, 1.0, 0], [0, -1.0, 0, 0], [0, 0, 0, 1.0]])
        frames = [
            {"file_path": f"frame_{i}.png", "transform_matrix": (applied @ pose).tolist()}
            for i, pose in enumerate(stored)
        ]
        value = {"w": 96, "h": 64, "fl_x": 48.5, "fl_y": 57.0, "cx": 48.0, "cy": 32.0}
        value |= {"applied_transform": applied[:3].tolist(), "frames": frames[::-1]}
        (folder / "transforms.json").write_text(json.dumps(value))
        return folder / "transforms.json"
    if kind == "colmap-text":
        (folder / "cameras.txt").write_text("# header\n1 PINHOLE 96 64 48.5 57 48 32\n")
        lines = ["# two lines an image"]
        for i in reversed(range(COUNT)):
            numbers = [*q[i].tolist(), *t[i].tolist()]
            lines += [f"{i + 1} {' '.join(map(repr, numbers))} 1 frame_{i}.png", ""]
        (folder / "images.txt").write_text("\n".join(lines) + "\n")
        return folder
    if kind == "colmap-binary":
        camera = struct.pack("<QIiQQ4d", 1, 1, 1, 96, 64, 48.5, 57.0, 48.0, 32.0)
        (folder / "cameras.bin").write_bytes(camera)
        data = struct.pack("<Q", COUNT)
        for i in range(COUNT):
            data += struct.pack("<I7dI", i + 1, *q[i], *t[i], 1) + f"frame_{i}.png\0".encode()
            data += struct.pack("<Q", 1) + struct.pack("<2dq", 1.0, 2.0, -1)
        (folder / "images.bin").write_bytes(data)
        return folder
    if kind == "engine":
        np.save(folder / "poses.npy", c2w)
        np.save(folder / "intrinsics.npy", np.tile([48.5, 57.0, 48.0, 32.0], (COUNT, 1)))
        (folder / "meta.json").write_text("{}")
        return folder / "poses.npy"
    assert kind == "npz"
    np.savez(folder / "a.npz", w2c=w2c.astype(np.float32))
    return folder / "a.npz"


KINDS = ["re10k", "tum", "kitti", "nerf", "colmap-text", "colmap-binary", "engine", "npz"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_path_is_the_same_in_every_format(tmp_path: Path, kind: str) -> None:
    place = write(tmp_path, kind)
    assert kind_of(place) == kind.partition("-")[0]
    track = read_cameras(place, kind.partition("-")[0])
    np.testing.assert_allclose(track.c2w_N44, path_of(), atol=1e-6)
    if kind in ("nerf", "colmap-text", "colmap-binary", "engine"):
        assert track.lens_N4 is not None
        np.testing.assert_allclose(track.lens_N4[0], [48.5, 57.0, 48.0, 32.0])


def test_a_realestate_list_without_its_first_line_loses_no_pose(tmp_path: Path) -> None:
    place = write(tmp_path, "re10k")
    place.write_text(place.read_text().partition("\n")[2])
    track = read_cameras(place, "re10k")
    assert len(track.c2w_N44) == COUNT
    assert track.times_s is not None
    assert track.times_s[1] == pytest.approx(0.0625)


def test_a_bare_array_needs_its_convention_and_both_are_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.linalg.inv(path_of()))
    with pytest.raises(SolarError) as told:
        read_cameras(tmp_path / "a.npy", "npy")
    assert (told.value.code, told.value.exit_code) == ("camera.convention", 3)
    track = read_cameras(tmp_path / "a.npy", "npy", convention="w2c")
    np.testing.assert_allclose(track.c2w_N44, path_of(), atol=1e-6)


def test_a_name_that_contradicts_the_declared_convention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SolarError) as told:
        read_cameras(write(tmp_path, "npz"), "npz", convention="c2w")
    assert told.value.code == "camera.convention"
    assert told.value.fixes == ("--convention w2c",)


def _transposed(folder: Path) -> Path:
    np.savez(folder / "a.npz", c2w=np.swapaxes(path_of(), 1, 2))
    return folder / "a.npz"


def _stretched(folder: Path) -> Path:
    poses = path_of()
    poses[3, :3, :3] *= 1.1
    np.savez(folder / "a.npz", c2w=poses)
    return folder / "a.npz"


def _pickled(folder: Path) -> Path:
    np.savez(folder / "a.npz", c2w=np.array([{}], dtype=object), allow_pickle=True)
    return folder / "a.npz"


def _failed(folder: Path) -> Path:
    np.savez(folder / "a.npz", vipe_c2w=path_of(), vipe_status="lost")
    return folder / "a.npz"


def _short_line(folder: Path) -> Path:
    (folder / "a.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0\n")
    return folder / "a.txt"


def _nan(folder: Path) -> Path:
    (folder / "a.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 nan 0 1 0 0 0 0 1 0\n")
    return folder / "a.txt"


def _distorted(folder: Path) -> Path:
    place = write(folder, "colmap-text")
    (folder / "cameras.txt").write_text("1 RADIAL 96 64 48.5 48 32 0.1 0.0\n")
    return place


def _cut_binary(folder: Path) -> Path:
    place = write(folder, "colmap-binary")
    (folder / "images.bin").write_bytes((folder / "images.bin").read_bytes()[:-40])
    return place


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (_transposed, "camera.not-rigid", "transposed"),
        (_stretched, "camera.not-rigid", "frame 3"),
        (_pickled, "camera.unreadable", ""),
        (_failed, "camera.status", "lost"),
        (_short_line, "camera.unreadable", "line 2"),
        (_nan, "camera.not-finite", "frame 1"),
        (_distorted, "camera.lens", ""),
        (_cut_binary, "camera.unreadable", ""),
    ],
)
def test_bad_camera_files_are_refused_by_name_and_frame(
    tmp_path: Path, make, code: str, said: str
) -> None:
    place = make(tmp_path)
    kind = kind_of(place)
    assert kind is not None
    with pytest.raises(SolarError) as told:
        read_cameras(place, kind)
    assert told.value.code == code
    assert said in told.value.why
    assert str(place) in str(told.value.where)
