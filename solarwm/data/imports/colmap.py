"""COLMAP models, text and binary: images are world-to-camera, quaternion scalar first, OpenCV axes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from solarwm.data.imports.tracks import CameraTrack, camera_fault, natural, poses_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MODELS = {
    0: ("SIMPLE_PINHOLE", 3),
    1: ("PINHOLE", 4),
    2: ("SIMPLE_RADIAL", 4),
    3: ("RADIAL", 5),
    4: ("OPENCV", 8),
    5: ("OPENCV_FISHEYE", 8),
    6: ("FULL_OPENCV", 12),
    7: ("FOV", 5),
    8: ("SIMPLE_RADIAL_FISHEYE", 4),
    9: ("RADIAL_FISHEYE", 5),
    10: ("THIN_PRISM_FISHEYE", 12),
}
_ONE_FOCAL = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
_TWO_FOCALS = ("PINHOLE", "OPENCV", "FULL_OPENCV")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    name: str
    quaternion: tuple[float, ...]
    translation: tuple[float, ...]
    camera: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Camera:
    model: str
    width: int
    height: int
    parameters: tuple[float, ...]


def read_colmap(folder: Path) -> CameraTrack:
    """The track of a model folder (`cameras` and `images`, `.txt` or `.bin`), images by name.

    Raises SolarError `camera.*` (exit 3): damaged files, no images, or a lens with distortion.
    """
    import numpy as np

    from solarwm.camera.poses import invert_se3

    try:
        if (folder / "images.bin").is_file():
            images = _images_bin((folder / "images.bin").read_bytes())
            cameras = _cameras_bin((folder / "cameras.bin").read_bytes())
        else:
            images = _images_text((folder / "images.txt").read_text("utf-8"))
            cameras = _cameras_text((folder / "cameras.txt").read_text("utf-8"))
        images.sort(key=lambda image: natural(image.name))
        used = [cameras[image.camera] for image in images]
    except (OSError, ValueError, KeyError, IndexError, struct.error) as error:
        why = f"{type(error).__name__}: {error}"
        raise camera_fault("unreadable", folder, "the COLMAP model cannot be read", why) from None
    if not images:
        raise camera_fault("shape", folder, "the COLMAP model holds 0 images", "images is empty")
    sizes = {(camera.width, camera.height) for camera in used}
    if len(sizes) > 1:
        why = f"{len(sizes)} picture sizes"
        raise camera_fault("lens", folder, "the images of a clip differ in size", why)
    poses = poses_of(
        np.array([image.quaternion for image in images], dtype=np.float64),
        np.array([image.translation for image in images], dtype=np.float64),
        folder,
    )
    return CameraTrack(
        kind="colmap",
        c2w_N44=invert_se3(poses),
        lens_N4=_lens(used, folder),
        lens_size=sizes.pop(),
    )


def _lens(cameras: list[_Camera], folder: Path) -> NDArray[np.float64]:
    import numpy as np

    rows = []
    for camera in cameras:
        values = camera.parameters
        if camera.model in _ONE_FOCAL:
            lens, warp = (values[0], values[0], values[1], values[2]), values[3:]
        elif camera.model in _TWO_FOCALS:
            lens, warp = values[:4], values[4:]
        else:
            lens, warp = (), (1.0,)
        if any(abs(value) > 1e-6 for value in warp):
            raise camera_fault(
                "lens",
                folder,
                f"the lens has distortion ({camera.model})",
                "camera control knows pinhole lenses",
                fix="colmap image_undistorter, then import the undistorted model and frames",
            )
        rows.append(lens)
    return np.array(rows, dtype=np.float64)


def _cameras_text(text: str) -> dict[int, _Camera]:
    found: dict[int, _Camera] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            found[int(words[0])] = _Camera(
                model=words[1],
                width=int(words[2]),
                height=int(words[3]),
                parameters=tuple(map(float, words[4:])),
            )
    return found


def _images_text(text: str) -> list[_Image]:
    """Two lines an image; the second, of its points, may be empty."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: list[_Image] = []
    place = 0
    while place < len(lines):
        words = lines[place].split(maxsplit=9)
        if not words:
            place += 1
            continue
        numbers = tuple(map(float, words[1:8]))
        found.append(
            _Image(
                name=words[9].strip(),
                quaternion=numbers[:4],
                translation=numbers[4:],
                camera=int(words[8]),
            )
        )
        place += 2
    return found


def _cameras_bin(data: bytes) -> dict[int, _Camera]:
    (count,) = struct.unpack_from("<Q", data)
    place = 8
    found: dict[int, _Camera] = {}
    for _ in range(count):
        name, model, width, height = struct.unpack_from("<IiQQ", data, place)
        title, length = _MODELS[model]
        place += 24
        found[name] = _Camera(
            model=title,
            width=width,
            height=height,
            parameters=struct.unpack_from(f"<{length}d", data, place),
        )
        place += 8 * length
    return found


def _images_bin(data: bytes) -> list[_Image]:
    (count,) = struct.unpack_from("<Q", data)
    place = 8
    found: list[_Image] = []
    for _ in range(count):
        values = struct.unpack_from("<I7dI", data, place)
        place += 64
        end = data.index(b"\0", place)
        name = data[place:end].decode("utf-8")
        (points,) = struct.unpack_from("<Q", data, end + 1)
        place = end + 9 + 24 * points
        found.append(
            _Image(name=name, quaternion=values[1:5], translation=values[5:8], camera=values[8])
        )
    return found
