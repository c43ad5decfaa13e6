"""Cameras as they lie on disk: the NPZ track, the manifest that vouches for it, and the lens."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ARRAY_KEYS = ("c2w", "w2c", "vipe_c2w", "vipe_w2c", "relative_w2c")
CONVENTION = "authoritative_source_c2w_no_axis_flip"
PUBLISHED_LIMIT = 20.0
_LENS_KEYS = ("camera_K", "K", "intrinsics")
_MAX_ARRAY_SIZE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraRules:
    """What a clip's cameras must be. A limit of None turns that guard off."""

    array_key: str = "c2w"
    max_rel_translation: float | None = PUBLISHED_LIMIT
    max_camera_abs: float | None = PUBLISHED_LIMIT
    latent_rows: Sequence[int] | None = None
    """Pixel rows of the latents, which the guards look at; None looks at every frame."""
    use_source_lens: bool = False
    """Read the clip's own intrinsics (`camera_intrinsics_mode: source`)."""


def read_manifest(data: bytes, sample_id: str) -> Mapping[str, Any]:
    """The manifest member as an object; SolarError `camera.manifest` (exit 3) otherwise."""
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        _refuse("camera.manifest", "the manifest is not valid JSON", sample_id, str(error))
    if not isinstance(manifest, dict):
        _refuse(
            "camera.manifest",
            "the manifest is not a JSON object",
            sample_id,
            type(manifest).__name__,
        )
    return manifest


def read_track(
    data: bytes, manifest: Mapping[str, Any], rules: CameraRules, sample_id: str
) -> NDArray[np.float32]:
    """The whole track as camera-to-world [T,4,4] float32, checked against the manifest and for
    rigid motion.

    Raises SolarError (exit 3): `camera.manifest`, `camera.unreadable`, `camera.status`,
    `camera.missing-array`, `camera.shape`, `camera.not-finite`, `camera.not-rigid`, with the frame
    number where there is one.
    """
    import numpy as np

    from solarwm.camera.guards import track_fault
    from solarwm.camera.poses import invert_se3

    stored = _npz_array(data, rules.array_key, sample_id)
    if fault := track_fault(stored):
        _refuse(
            f"camera.{fault.kind}", _HEADLINES[fault.kind], sample_id, fault.why, frame=fault.frame
        )
    check_manifest(manifest, stored, rules, sample_id)
    track = stored.astype(np.float32)
    return track if rules.array_key.endswith("c2w") else invert_se3(track)


def check_manifest(
    manifest: Mapping[str, Any], stored: NDArray[np.generic], rules: CameraRules, sample_id: str
) -> None:
    """Whether the manifest's camera block speaks of this very array; SolarError `camera.manifest`
    otherwise.
    """
    block = manifest.get("camera")
    if not isinstance(block, Mapping):
        _refuse(
            "camera.manifest",
            "the manifest has no camera block",
            sample_id,
            "`camera` must be an object",
        )
    expected: dict[str, object] = {
        "convention": CONVENTION,
        "dtype": "float32",
        "finite": True,
        "magnitude_audit_seconds": 10.0,
        "max_camera_abs": PUBLISHED_LIMIT,
        "max_rel_translation": PUBLISHED_LIMIT,
        "shape": list(stored.shape),
    }
    if "array_key" in block:
        expected["array_key"] = rules.array_key
    for name, value in expected.items():
        found = block.get(name)
        if found != value or isinstance(found, bool) != isinstance(value, bool):
            _refuse(
                "camera.manifest",
                f"camera.{name} of the manifest is wrong",
                sample_id,
                f"it is {found!r}, not {value!r}",
            )
    key = manifest.get("camera_array_key", rules.array_key)
    if key != rules.array_key:
        why = f"it is {key!r}, data.camera_array_key is {rules.array_key!r}"
        _refuse(
            "camera.manifest", "camera_array_key of the manifest is another one", sample_id, why
        )
    if str(stored.dtype) != "float32":
        why = f"the manifest says float32, the array is {stored.dtype}"
        _refuse("camera.manifest", "the camera array has another dtype", sample_id, why)


def check_lens(data: bytes, sample_id: str) -> NDArray[np.float64]:
    """The stored intrinsics as they are. NaN and infinity are refused whether or not the lens is
    used, `camera.lens` (exit 3) with the frame.
    """
    import numpy as np

    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        array = loaded
        if isinstance(loaded, np.lib.npyio.NpzFile):
            names = [name for name in _LENS_KEYS if name in loaded.files]
            if not names:
                raise ValueError(f"none of {', '.join(_LENS_KEYS)} is in the file")
            array = loaded[names[0]]
        array = np.asarray(array, np.float64)
    except (ValueError, TypeError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        _refuse("camera.lens", "the intrinsics cannot be read", sample_id, str(error))
    values = 9 if array.shape[-2:] == (3, 3) else 4
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        frame = int(bad[0]) // values if array.size > values else None
        why = "they hold NaN or infinity"
        _refuse("camera.lens", "the intrinsics are not finite", sample_id, why, frame=frame)
    return array


def read_lens(
    data: bytes, num_frames: int, frames: Sequence[int], sample_id: str
) -> NDArray[np.float64]:
    """The one lens (fx, fy, cx, cy) of a clip, [1,4] as stored, from an NPY or NPZ intrinsics
    member.

    A lens that changes within the clip is refused, `camera.lens` (exit 3).
    """
    import numpy as np

    from solarwm.camera.intrinsics import as_focal_centre

    try:
        rows = as_focal_centre(check_lens(data, sample_id))
    except ValueError as error:
        _refuse("camera.lens", "the intrinsics cannot be used", sample_id, str(error))
    if len(rows) == 1:
        return rows
    if len(rows) <= frames[-1]:
        _refuse(
            "camera.lens",
            "the intrinsics are too short",
            sample_id,
            f"{len(rows)} rows of {num_frames} frames",
        )
    used = rows[list(frames)]
    changed = np.flatnonzero(np.abs(used - used[0]).max(axis=1) > 1e-6 * np.abs(used[0]).max())
    if changed.size:
        frame = frames[int(changed[0])]
        _refuse(
            "camera.lens",
            "the lens changes within the clip",
            sample_id,
            "one lens a clip is supported",
            frame=frame,
        )
    return used[:1]


_HEADLINES = {
    "shape": "the camera array has a wrong shape",
    "not-finite": "a camera pose is not finite",
    "not-rigid": "a camera pose is not a rigid motion",
    "guard": "the camera moves beyond the limits",
}


def refuse_guard(why: str, frame: int | None, sample_id: str) -> NoReturn:
    """Raise `camera.guard`: a well-formed camera that leaves the limits."""
    _refuse("camera.guard", _HEADLINES["guard"], sample_id, why, frame=frame)


def _npz_array(data: bytes, key: str, sample_id: str) -> NDArray[np.generic]:
    import numpy as np

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            sizes = {
                entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()
            }
        status_known = "vipe_status" in sizes
        if key not in sizes:
            why = f"`{key}` is not among {', '.join(sorted(sizes)) or 'no arrays'}"
            _refuse("camera.missing-array", "the camera file lacks the array", sample_id, why)
        if sizes[key] > _MAX_ARRAY_SIZE:
            _refuse(
                "camera.shape", _HEADLINES["shape"], sample_id, f"`{key}` has {sizes[key]} bytes"
            )
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            array = arrays[key]
            status = str(arrays["vipe_status"].reshape(-1)[0]) if status_known else "ok"
    except (
        ValueError,
        OSError,
        EOFError,
        KeyError,
        IndexError,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        _refuse("camera.unreadable", "the camera file is no readable NPZ", sample_id, str(error))
    if status != "ok":
        _refuse(
            "camera.status",
            "the camera estimate failed",
            sample_id,
            f"vipe_status is {status!r}, not 'ok'",
        )
    return array


def _refuse(
    code: str, headline: str, sample_id: str, why: str, *, frame: int | None = None
) -> NoReturn:
    context: dict[str, object] = {"sample_id": sample_id}
    if frame is not None:
        context["frame"] = frame
        why = f"frame {frame}: {why}"
    raise SolarError(code, f"{headline}: {sample_id}", where=sample_id, why=why, context=context)
