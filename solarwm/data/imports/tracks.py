"""Camera files of other tools, read into OpenCV camera-to-world poses.

N poses. Every reader says in its docstring which convention its format has by definition; only bare
arrays need one declared.
"""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONVENTIONS = ("c2w", "w2c")
FORMATS = ("npz", "npy", "re10k", "colmap", "tum", "kitti", "nerf", "engine")
_DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraTrack:
    """Poses of one clip. `lens` holds fx, fy, cx, cy, in pixels of `lens_size` or, where that is
    None, divided by width and height."""

    kind: str
    c2w_N44: NDArray[np.floating]
    lens_N4: NDArray[np.float64] | None = None
    lens_size: tuple[int, int] | None = None
    """Width and height the lens is given for."""
    lens_of_video: bool = False
    """The lens is in pixels of the video beside it, whatever its size."""
    times_s: NDArray[np.float64] | None = None


def read_cameras(path: Path, kind: str, *, convention: str | None = None) -> CameraTrack:
    """The track in a file or folder of the given format.

    Raises SolarError `camera.*` (exit 3), naming file and line or frame; `camera.convention` where a
    bare array comes without a declared one.
    """
    from solarwm.data.imports.colmap import read_colmap

    readers = {
        "npz": lambda: _npz(path, convention),
        "npy": lambda: _npy(path, convention),
        "engine": lambda: _engine(path),
        "re10k": lambda: read_re10k(_text(path), path),
        "tum": lambda: read_tum(_text(path), path),
        "kitti": lambda: read_kitti(_text(path), path),
        "nerf": lambda: read_nerf(_text(path), path),
        "colmap": lambda: read_colmap(path),
    }
    return readers[kind]()


def kind_of(path: Path) -> str | None:
    """Which format a file or folder is in, by its name and the numbers of its lines; None when none."""
    if path.is_dir():
        known = [path / f"images.{end}" for end in ("bin", "txt")]
        return "colmap" if any(place.is_file() for place in known) else None
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return "npz"
    if suffix == ".npy":
        whole = path.name == "poses.npy" and (path.parent / "meta.json").is_file()
        return "engine" if whole else "npy"
    if suffix == ".json":
        return "nerf"
    if suffix == ".txt":
        for line in _text(path).splitlines()[:3]:
            words = line.split()
            if words and all(map(_number, words)):
                return {19: "re10k", 12: "kitti", 8: "tum"}.get(len(words))
    return None


def read_re10k(text: str, path: Path) -> CameraTrack:
    """RealEstate10K and DiffSynth lists: a URL line, then 19 numbers a frame: time in microseconds,
    lens divided by width and height, two zeros, a 3x4 world-to-camera."""
    import numpy as np

    from solarwm.camera.poses import invert_se3

    lines = text.splitlines()
    first = lines[0].split() if lines else []
    skip = 0 if len(first) == 19 and all(map(_number, first)) else 1
    table = _table("\n".join(lines[skip:]), path, width=19, first_line=skip + 1)
    times = table[:, 0] / 1e6
    return CameraTrack(
        kind="re10k",
        c2w_N44=invert_se3(_square(table[:, 7:])),
        lens_N4=table[:, 1:5],
        times_s=times if bool(np.ptp(times)) else None,
    )


def read_tum(text: str, path: Path) -> CameraTrack:
    """TUM: seconds, tx ty tz, qx qy qz qw a line; camera-to-world, OpenCV axes."""
    table = _table(text, path, width=8)
    return CameraTrack(
        kind="tum",
        c2w_N44=poses_of(table[:, [7, 4, 5, 6]], table[:, 1:4], path),
        times_s=table[:, 0],
    )


def read_kitti(text: str, path: Path) -> CameraTrack:
    """KITTI odometry: a 3x4 camera-to-world a line, OpenCV axes."""
    return CameraTrack(kind="kitti", c2w_N44=_square(_table(text, path, width=12)))


def read_nerf(text: str, path: Path) -> CameraTrack:
    """NeRF, instant-ngp and nerfstudio: camera-to-world with OpenGL axes; `applied_transform` is
    undone; frames in the order of their file names."""
    import numpy as np

    try:
        value = json.loads(text)
        frames = sorted(value["frames"], key=lambda frame: natural(str(frame["file_path"])))
        stored = np.array([frame["transform_matrix"] for frame in frames], dtype=np.float64)
        if stored.ndim != 3 or stored.shape[1:] not in ((4, 4), (3, 4)):
            raise ValueError(f"transform_matrix has shape {list(stored.shape[1:])}")
        stored = _square(stored[:, :3].reshape(len(stored), 12))
        if "applied_transform" in value:
            applied = _square(np.array(value["applied_transform"], np.float64)[:3].reshape(1, 12))
            stored = np.linalg.inv(applied[0]) @ stored
        lens, size = _nerf_lens(value, frames)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise camera_fault("unreadable", path, "the transforms file cannot be read", why) from None
    return CameraTrack(
        kind="nerf",
        c2w_N44=stored @ np.diag([1.0, -1.0, -1.0, 1.0]),
        lens_N4=lens,
        lens_size=size,
    )


def poses_of(
    quaternions_N4: NDArray[np.float64], translations_N3: NDArray[np.float64], path: Path
) -> NDArray[np.float64]:
    """Matrices [N,4,4] of unit quaternions (scalar first) and translations."""
    import numpy as np

    length = np.linalg.norm(quaternions_N4, axis=1)
    bad = np.flatnonzero(~(np.abs(length - 1) < 1e-2))
    if bad.size:
        why = f"frame {int(bad[0])}: a quaternion of length {length[bad[0]]:.4g}, not 1"
        raise camera_fault("not-rigid", path, "a camera pose is not a rigid motion", why)
    w, x, y, z = (quaternions_N4 / length[:, None]).T
    rotation = np.stack(
        [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ],
        axis=1,
    ).reshape(-1, 3, 3)  # fmt: skip
    poses = np.tile(np.eye(4), (len(rotation), 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = rotation, translations_N3
    return poses


def natural(name: str) -> list[int | str]:
    """A sort key by which frame_2 comes before frame_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def camera_fault(kind: str, path: Path, headline: str, why: str, *, fix: str = "") -> SolarError:
    """A `camera.*` fault (exit 3) at a camera file."""
    return SolarError(
        f"camera.{kind}", headline, where=str(path), why=why, fixes=[fix] if fix else ()
    )


def _npz(path: Path, convention: str | None) -> CameraTrack:
    import numpy as np

    from solarwm.data.cameras import ARRAY_KEYS

    arrays = _arrays(path)
    names = [name for name in (*ARRAY_KEYS, "camera_c2w", "camera_w2c") if name in arrays]
    if str(arrays.get("vipe_status", "ok")) != "ok":
        why = f"vipe_status is {arrays['vipe_status']}"
        raise camera_fault("status", path, "the camera estimate failed", why)
    if names:
        name, declared = names[0], "c2w" if names[0].endswith("c2w") else "w2c"
        if convention not in (None, declared):
            why = f"the array is {name!r}, --convention says {convention}"
            raise camera_fault(
                "convention", path, "the file declares the other convention", why,
                fix=f"--convention {declared}",
            )  # fmt: skip
    else:
        plain = [
            n for n in ("poses", "extrinsics", "extrinsic", "viewmats", "arr_0") if n in arrays
        ]
        if not plain:
            why = f"it holds {', '.join(arrays) or 'nothing'}"
            raise camera_fault("missing-array", path, "the camera file holds no poses", why)
        name, declared = plain[0], _declared(path, convention)
    lens = next((arrays[n] for n in ("camera_K", "K", "intrinsics") if n in arrays), None)
    return CameraTrack(
        kind="npz",
        c2w_N44=_c2w(np.asarray(arrays[name]), declared, path),
        lens_N4=None if lens is None else _lens(np.asarray(lens), path),
        lens_of_video=True,
    )


def _npy(path: Path, convention: str | None) -> CameraTrack:
    return CameraTrack(kind="npy", c2w_N44=_c2w(_array(path), _declared(path, convention), path))


def _engine(path: Path) -> CameraTrack:
    """The published data engine's clip folder: metric camera-to-world, lens in pixels of the video."""
    beside = path.parent / "intrinsics.npy"
    track = CameraTrack(kind="engine", c2w_N44=_c2w(_array(path), "c2w", path), lens_of_video=True)
    return replace(track, lens_N4=_lens(_array(beside), beside)) if beside.is_file() else track


def _declared(path: Path, convention: str | None) -> str:
    if convention is None:
        raise camera_fault(
            "convention",
            path,
            "the file does not tell which convention its poses have",
            "camera-to-world and world-to-camera look alike, and one drives backwards",
            fix="--convention c2w or --convention w2c",
        )
    return convention


def _c2w(array: NDArray[Any], declared: str, path: Path) -> NDArray[np.floating]:
    import numpy as np

    from solarwm.camera.guards import track_fault
    from solarwm.camera.poses import invert_se3

    if array.ndim == 3 and array.shape[1:] == (3, 4) and np.issubdtype(array.dtype, np.number):
        array = _square(array.reshape(len(array), 12))
    fault = track_fault(array)
    if fault is not None and fault.kind != "guard":
        frame = "" if fault.frame is None else f"frame {fault.frame}: "
        raise camera_fault(
            fault.kind, path, "the poses are no rigid motions", f"{frame}{fault.why}"
        )
    poses = array.astype(np.float64)
    return poses if declared == "c2w" else invert_se3(poses)


def _lens(array: NDArray[Any], path: Path) -> NDArray[np.float64]:
    import numpy as np

    value = np.asarray(array, dtype=np.float64)
    if value.shape[-2:] == (3, 3):
        parts = (value[..., 0, 0], value[..., 1, 1], value[..., 0, 2], value[..., 1, 2])
        value = np.stack(parts, axis=-1)
    value = np.atleast_2d(value)
    if value.ndim != 2 or value.shape[1] != 4 or not np.isfinite(value).all():
        why = f"shape {list(array.shape)}; fx, fy, cx, cy or 3x3 matrices are needed, all finite"
        raise camera_fault("lens", path, "the intrinsics cannot be read", why)
    return value


def _nerf_lens(
    value: dict[str, Any], frames: list[dict[str, Any]]
) -> tuple[NDArray[np.float64] | None, tuple[int, int] | None]:
    import numpy as np

    warped = [name for name in _DISTORTION if abs(float(value.get(name) or 0)) > 1e-6]
    if warped:
        raise ValueError(f"the lens is distorted ({', '.join(warped)}); undistort the frames first")
    rows = []
    for frame in frames:
        told = {**value, **frame}
        width, height = float(told.get("w") or 0), float(told.get("h") or 0)
        focal = told.get("fl_x")
        if focal is None and told.get("camera_angle_x") and width:
            focal = 0.5 * width / math.tan(0.5 * float(told["camera_angle_x"]))
        if focal is None or not width or not height:
            return None, None
        centre = (told.get("cx", width / 2), told.get("cy", height / 2))
        rows.append([float(focal), float(told.get("fl_y") or focal), *map(float, centre)])
    return np.array(rows), (int(width), int(height))


def _table(text: str, path: Path, *, width: int, first_line: int = 1) -> NDArray[np.float64]:
    import numpy as np

    rows = []
    for number, line in enumerate(text.splitlines(), start=first_line):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != width or not all(map(_number, words)):
            why = f"line {number} holds {len(words)} words; {width} numbers are needed"
            raise camera_fault("unreadable", path, "the camera file cannot be read", why)
        rows.append([float(word) for word in words])
    if not rows:
        raise camera_fault("shape", path, "the camera file holds 0 poses", "no line of numbers")
    table = np.array(rows)
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if bad.size:
        why = f"frame {int(bad[0])} holds NaN or infinity"
        raise camera_fault("not-finite", path, "a camera pose is not finite", why)
    return table


def _square(rows_N12: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    poses = np.tile(np.eye(4), (len(rows_N12), 1, 1))
    poses[:, :3] = rows_N12.reshape(-1, 3, 4)
    return poses


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8"
        raise camera_fault("unreadable", path, "the camera file is no text", why) from None
    except OSError as error:
        raise camera_fault(
            "unreadable", path, "the camera file cannot be read", str(error)
        ) from None


def _array(path: Path) -> NDArray[Any]:
    import numpy as np

    try:
        return np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise camera_fault("unreadable", path, "the array cannot be read", str(error)) from None


def _arrays(path: Path) -> dict[str, Any]:
    import zipfile

    import numpy as np

    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, TypeError) as error:
        raise camera_fault("unreadable", path, "the arrays cannot be read", str(error)) from None
