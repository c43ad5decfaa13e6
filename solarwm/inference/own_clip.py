"""A user's own picture and camera as the one case of a generation. No torch.

Shapes: N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solarwm.camera.guards import magnitude_fault, track_fault
from solarwm.camera.intrinsics import fixed_intrinsics
from solarwm.camera.motion import describe_motion
from solarwm.camera.poses import invert_se3, latent_rows, relative_to_first
from solarwm.camera.trajectory import parse_trajectory, trajectory_track
from solarwm.data.cameras import ARRAY_KEYS, CameraRules
from solarwm.data.framing import framed
from solarwm.data.records import RawClip
from solarwm.errors.types import SolarError
from solarwm.inference import plan as plans_of
from solarwm.inference.cases import Case
from solarwm.inference.plan import ClipCut, PassPlan
from solarwm.inference.selection import draw_seed

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

KEY_FRAMES = 4
"""Pixel frames a key is held: those of one latent frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequest:
    """What `infer --image` is given: a picture, and keys or a camera file."""

    image: Path
    trajectory: str | None = None
    camera: Path | None = None
    prompt: str = ""

    def track(self) -> np.ndarray:
        """Absolute camera-to-world float64 [N,4,4]. Raises `inference.trajectory` (exit 2) and
        `camera.*` (exit 3)."""
        if self.camera is not None:
            return read_track_file(self.camera)
        try:
            return trajectory_track(
                parse_trajectory(self.trajectory or ""), frames_per_step=KEY_FRAMES
            )
        except ValueError as error:
            raise SolarError(
                "inference.trajectory",
                "the trajectory cannot be read",
                where="--trajectory",
                why=str(error),
                fixes=['--trajectory "w*19,j*7" walks 19 latent frames and turns left for 7'],
            ) from None

    def identity(self) -> dict[str, Any]:
        """What a resume must agree on."""
        return {
            "image": blake2s(self.image.read_bytes()).hexdigest(),
            "camera": blake2s(np.ascontiguousarray(self.track()).tobytes()).hexdigest(),
            "trajectory": self.trajectory,
        }


class OwnClip:
    """One case that starts at a picture; stands where the held-out clips do. There is no truth: the
    clip has one picture and the whole track."""

    def __init__(self, request: OwnRequest, *, cut: ClipCut, rules: CameraRules) -> None:
        self._request = request
        self._cut = cut
        self._pixels_1YX3 = framed(read_image(request.image)[None], cut.height, cut.width)
        track = request.track()
        self.given_frames = len(track)
        held = np.repeat(track[-1:], max(0, cut.frames - len(track)), axis=0)
        self._track_N44 = np.concatenate([track, held])[: cut.frames]
        fault = magnitude_fault(
            self._track_N44,
            rows=[row for row in rules.latent_rows or range(cut.frames) if row < cut.frames],
            rate=cut.fps,
            max_rel_translation=rules.max_rel_translation,
            max_camera_abs=rules.max_camera_abs,
        )
        if fault is not None:
            raise _camera_fault("camera.guard", request, fault.why)

    def cases(self, *, base_noise_seed: int) -> tuple[Case, ...]:
        """The one case, with the noise of slot 0."""
        identity = self._request.identity()
        return (
            Case(
                slot=0,
                row_index=0,
                sample_id=self._request.image.stem,
                prompt=self._request.prompt,
                start_frame=0,
                noise_seed=draw_seed("validation-noise", 0, 0, base_noise_seed),
                camera_fingerprint=identity["camera"],
                metadata={"own": identity, "given_frames": self.given_frames},
                frames=self._cut.frames,
            ),
        )

    def clip(self, case: Case) -> RawClip:
        """The picture and the whole track."""
        return RawClip(
            sample_id=case.sample_id,
            key=case.sample_id,
            caption=case.prompt,
            start_frame=0,
            frame_indices=tuple(range(len(self._track_N44))),
            c2w_N44=self._track_N44,
            intrinsics_33=fixed_intrinsics(),
            fps=self._cut.fps,
            source_num_frames=self.given_frames,
            pixels_NYX3=self._pixels_1YX3,
        )

    def opening(self, case: Case) -> tuple[RawClip, None]:
        """The same: there are no other pictures."""
        return self.clip(case), None

    def next_track(self, case: Case) -> np.ndarray:
        """The case's own track: there is no other case."""
        return self._track_N44


def open_own(
    resolved: ResolvedRun, request: OwnRequest, passes: tuple[PassPlan, ...]
) -> tuple[OwnClip, tuple[PassPlan, ...]]:
    """The clip of a request, and the passes at its length: chunk by chunk as long as the track, else
    as the config says, where a shorter track stays at its last pose and a longer one is cut."""
    cut, rules = plans_of.clip_cut(resolved), plans_of.camera_rules(resolved)
    latents = plans_of.own_length(resolved, len(request.track()))
    if latents is None:
        return OwnClip(request, cut=cut, rules=rules), passes
    geometry = resolved.route.spec.profiles[resolved.config.model.profile].geometry
    frames = geometry.frames(latents) or cut.frames
    clip = OwnClip(
        request,
        cut=replace(cut, frames=frames, latents=latents, least_frames=0),
        rules=replace(rules, latent_rows=latent_rows(latents)),
    )
    return clip, tuple(replace(plan, latents=latents) for plan in passes)


def read_image(path: Path) -> np.ndarray:
    """A picture as uint8 RGB [Y,X,3], turned as its EXIF says. Raises `inference.image` (exit 3)."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SolarError(
            "inference.image",
            "the picture cannot be read",
            where=str(path),
            why=str(error),
            fixes=["--image FILE with a PNG, JPEG or WebP picture"],
        ) from None


def read_track_file(path: Path) -> np.ndarray:
    """Absolute camera-to-world float64 [N,4,4] of an NPY, or of the first known array of an NPZ
    (`c2w`, `w2c`, ...). Raises `camera.unreadable`, `camera.missing-array`, `camera.shape` and the
    like (exit 3)."""
    try:
        loaded = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        inverse = False
        if isinstance(loaded, np.lib.npyio.NpzFile):
            names = [name for name in ARRAY_KEYS if name in loaded.files]
            if not names:
                why = f"none of {', '.join(ARRAY_KEYS)} is among {', '.join(loaded.files)}"
                raise _file_fault("camera.missing-array", path, why)
            inverse = names[0].endswith("w2c")
            loaded = loaded[names[0]]
        poses = np.asarray(loaded)
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise _file_fault("camera.unreadable", path, str(error)) from None
    fault = track_fault(poses)
    if fault is not None:
        at = "" if fault.frame is None else f"frame {fault.frame}: "
        raise _file_fault(f"camera.{fault.kind}", path, at + fault.why)
    poses = poses.astype(np.float64)
    return invert_se3(poses) if inverse else poses


def _file_fault(code: str, path: Path, why: str) -> SolarError:
    return SolarError(
        code,
        "the camera file cannot be used",
        where=str(path),
        why=why,
        fixes=["--camera FILE.npz with `c2w`, float [frames,4,4], OpenCV camera-to-world"],
    )


def _camera_fault(code: str, request: OwnRequest, why: str) -> SolarError:
    return SolarError(
        code,
        "the camera moves beyond the limits",
        where=str(request.camera or "--trajectory"),
        why=why,
        fixes=["--set validation.max_rel_translation=null --set validation.max_camera_abs=null"],
    )


def camera_report(resolved: ResolvedRun, request: OwnRequest) -> dict[str, Any]:
    """The camera of a request as `infer --print` shows it: what was given, and the poses the model
    sees, seen from the first."""
    clip, passes = open_own(resolved, request, plans_of.pass_plans(resolved, numerics="corrected"))
    latents = max(plan.latents for plan in passes)
    track = relative_to_first(clip.next_track(clip.cases(base_noise_seed=0)[0]))
    rows = [row for row in latent_rows(latents) if row < len(track)]
    return {
        "schema": "solarwm.own-camera.v1",
        "given_frames": clip.given_frames,
        "frames": len(track),
        "latents": latents,
        "motion": describe_motion(track),
        "latent_frames": rows,
        "c2w": track[rows].tolist(),
        "intrinsics": fixed_intrinsics().tolist(),
    }
