"""What a config asks `infer` to make: passes, clip geometry, camera rules. Plain values, no
torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.data.cameras import CameraRules
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

SUPPORTED_STAGES = ("stage0p5",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlan:
    """How one pass samples."""

    name: str
    weights: str
    """`live` or `ema`."""
    solver: str
    """`unipc` or `euler`."""
    num_inference_steps: int
    camera: str
    """`source`, `inverse`, `mirror`, `frozen` or `other`."""
    latents: int
    """Latent frames generated."""
    shift: float
    """Timestep shift of the noise grid."""
    numerics: str = "corrected"
    """`corrected`, or `published` rounding of solver times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipCut:
    """How clips are cut from their sources."""

    frames: int
    latents: int
    height: int
    width: int
    fps: float
    """Frames per second of the clip; 0 keeps the source rate."""
    translation_transform: str


def check_supported(resolved: ResolvedRun) -> None:
    """Refuse (exit 2) what this release cannot generate, before anything is written."""
    route = resolved.route
    if route.stage not in SUPPORTED_STAGES:
        raise SolarError(
            "cli.not-available",
            f"solarwm infer does not run {route.key} yet",
            why="this release generates with Stage0.5 (bidirectional) models",
        )
    if resolved.config.data.encoding != "online":  # type: ignore[attr-defined]
        raise SolarError(
            "cli.not-available",
            "solarwm infer reads raw clips only",
            where="data.encoding",
            why="a comparison with the truth needs pixels, which pre-encoded data lack",
            fixes=["--set data.encoding=online"],
        )
    if not resolved.config.validation.sample_count or not _passes(resolved):
        raise SolarError(
            "config.value",
            "nothing to generate",
            where="validation",
            why="validation.sample_count is 0 or validation.passes is empty",
            fixes=["--set validation.sample_count=16"],
        )


def test_index_path(resolved: ResolvedRun) -> Path:
    """The index of held-out clips."""
    data: Any = resolved.config.data
    return Path(data.index_root or data.transport.root) / data.test_index


def pass_plans(resolved: ResolvedRun, *, numerics: str) -> tuple[PassPlan, ...]:
    """The passes in config order."""
    config: Any = resolved.config
    return tuple(
        PassPlan(
            name=item.name,
            weights=item.weights,
            solver=item.solver,
            num_inference_steps=item.num_inference_steps,
            camera=item.camera,
            latents=item.rollout_latent_frames or config.data.latent_frames,
            shift=config.model.timestep_shift,
            numerics=numerics,
        )
        for item in _passes(resolved)
    )


def wanted_weights(resolved: ResolvedRun) -> tuple[str, ...]:
    """The weights the passes use, each once."""
    return tuple(dict.fromkeys(item.weights for item in _passes(resolved)))


def clip_cut(resolved: ResolvedRun) -> ClipCut:
    """How held-out clips are cut."""
    data: Any = resolved.config.data
    return ClipCut(
        frames=data.pixel_frames,
        latents=data.latent_frames,
        height=data.height,
        width=data.width,
        fps=data.fps,
        translation_transform=resolved.config.model.camera_translation_transform,
    )


def camera_rules(resolved: ResolvedRun) -> CameraRules:
    """What the cameras of held-out clips must be; guards look at the latents' pixel rows."""
    from solarwm.camera.poses import latent_rows

    config: Any = resolved.config
    return CameraRules(
        array_key=config.data.camera_array_key,
        max_rel_translation=config.validation.max_rel_translation,
        max_camera_abs=config.validation.max_camera_abs,
        latent_rows=latent_rows(config.data.latent_frames),
        use_source_lens=config.model.camera_intrinsics_mode == "source",
    )


def _passes(resolved: ResolvedRun) -> Any:
    return resolved.config.validation.passes  # type: ignore[attr-defined]
