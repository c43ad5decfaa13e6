"""What a config asks `infer` to make: passes, clip geometry, camera rules. Plain values, no
torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.data.cameras import CameraRules
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun

AUTOREGRESSIVE = "autoregressive"
LEAST_CHUNKS = 3
"""Fewest chunks of a rollout that is as long as its camera track."""
RAW_TIMES = 1000
"""Raw time of pure noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlan:
    """How one pass samples."""

    name: str
    weights: str
    """`live` or `ema`."""
    solver: str
    """`unipc`, `euler`, `flowmap` or `self_forcing`."""
    num_inference_steps: int
    camera: str
    """`source`, `inverse`, `mirror`, `frozen` or `other`."""
    latents: int
    """Latent frames generated, the most where it varies by source; 0 = as long as the camera
    track."""
    shift: float
    """Timestep shift of the noise grid."""
    numerics: str = "corrected"
    """`corrected`, or `published` rounding of solver times."""
    mode: str = "bidirectional"
    """All latents at once, or `autoregressive`: chunk by chunk."""
    levels: tuple[float, ...] = ()
    """Noise levels a few-step student was trained at."""
    delta_policy: str = "drop"
    """What a few-step student does with the endpoint of the flow map it was."""
    context_sigma: float = 0.0
    """Noise level at which finished chunks become history."""
    recall_history: bool = False
    """Encode the window anew before every chunk."""


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
    least_frames: int = 0
    """Fewest frames of a clip whose source is shorter; 0 or `frames` = all clips are equally
    long."""
    step_frames: int = 1
    """A shorter clip lacks whole multiples of this."""

    whole_track: bool = False
    """Every clip is as long as its source, whatever the count."""

    def fitting(self, available: int) -> int:
        """Frames of the clip of a source that reaches over `available` output frames."""
        if self.whole_track:
            return available
        if not 0 < self.least_frames < self.frames or available >= self.frames:
            return self.frames
        lacking = -(-(self.frames - available) // self.step_frames)
        return max(self.least_frames, self.frames - lacking * self.step_frames)


def check_supported(resolved: ResolvedRun) -> None:
    """Refuse (exit 2) what this release cannot generate, before anything is written. A training on
    latents validates on the raw clips of its test index."""
    config: Any = resolved.config
    if config.action == "infer" and config.data.encoding != "online":
        raise SolarError(
            "cli.not-available",
            "held-out clips are generated from raw data only",
            where="data.encoding",
            why="a comparison with the truth needs pixels, which pre-encoded data lack",
            fixes=["--set data.encoding=online"],
        )
    if not config.validation.sample_count or not _passes(resolved):
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


def train_index_path(resolved: ResolvedRun) -> Path:
    """The index of training clips."""
    data: Any = resolved.config.data
    return Path(data.index_root or data.transport.root) / data.train_index


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
            latents=0
            if _whole_track(resolved)
            else item.rollout_latent_frames or config.data.latent_frames,
            shift=config.model.timestep_shift,
            numerics=numerics,
            mode=getattr(item, "mode", "bidirectional"),
            levels=_levels(config) if item.solver == "self_forcing" else (),
            delta_policy=getattr(config.train, "delta_policy", "drop"),
            context_sigma=getattr(config.validation, "context_noise", 0.0) / RAW_TIMES,
            recall_history=numerics == "published" and resolved.route.stage == "stage1",
        )
        for item in _passes(resolved)
    )


def streams(passes: Sequence[PassPlan], *, own: bool) -> bool:
    """Whether clips are published as they are made: chunk by chunk passes as long as a camera track, or
    over a picture of the user's (`own`), which has no truth."""
    return all(item.mode == AUTOREGRESSIVE and (own or not item.latents) for item in passes)


def wanted_weights(resolved: ResolvedRun) -> tuple[str, ...]:
    """The weights the passes use, each once."""
    return tuple(dict.fromkeys(item.weights for item in _passes(resolved)))


def endpoint_gate(resolved: ResolvedRun) -> float | None:
    """Share of the endpoint embedding of the student's transformer; None where it has none."""
    train: Any = resolved.config.train
    flow_map = resolved.route.objective == "anyflow_forward_map"
    keeps = getattr(train, "delta_policy", "drop") != "drop"
    return train.anyflow_gate if flow_map or keeps else None


def clip_cut(resolved: ResolvedRun) -> ClipCut:
    """How held-out clips are cut."""
    data: Any = resolved.config.data
    latents, least = _rollout(resolved)
    geometry = resolved.route.spec.profiles[resolved.config.model.profile].geometry
    return ClipCut(
        frames=geometry.frames(latents) or data.pixel_frames,
        latents=latents,
        height=data.height,
        width=data.width,
        fps=data.fps,
        translation_transform=resolved.config.model.camera_translation_transform,
        least_frames=geometry.frames(least) or data.pixel_frames,
        step_frames=geometry.period_frames * resolved.route.spec.chunk_latents,
        whole_track=_whole_track(resolved),
    )


def own_length(resolved: ResolvedRun, given_frames: int) -> int | None:
    """Latent frames that cover a camera track of `given_frames`: whole chunks, at least three. None
    where the passes make all latents at once and so keep their own length."""
    if any(getattr(item, "mode", "") != AUTOREGRESSIVE for item in _passes(resolved)):
        return None
    chunk = resolved.route.spec.chunk_latents
    geometry = resolved.route.spec.profiles[resolved.config.model.profile].geometry
    needed = 1 + -(-(given_frames - 1) // geometry.period_frames)
    return max(LEAST_CHUNKS, -(-needed // chunk)) * chunk


def camera_rules(resolved: ResolvedRun) -> CameraRules:
    """What the cameras of held-out clips must be; guards look at the latents' pixel rows."""
    from solarwm.camera.poses import latent_rows

    config: Any = resolved.config
    return CameraRules(
        array_key=config.data.camera_array_key,
        max_rel_translation=config.validation.max_rel_translation,
        max_camera_abs=config.validation.max_camera_abs,
        latent_rows=latent_rows(min(config.data.latent_frames, _rollout(resolved)[1])),
        use_source_lens=config.model.camera_intrinsics_mode == "source",
    )


def _rollout(resolved: ResolvedRun) -> tuple[int, int]:
    """(latent frames of the longest pass, fewest of a clip whose source is shorter)."""
    config: Any = resolved.config
    own = config.data.latent_frames
    lengths = [getattr(item, "rollout_latent_frames", None) or own for item in _passes(resolved)]
    longest = max(lengths, default=own)
    section = config.validation
    if not getattr(section, "variable_rollout_by_source", False):
        return longest, longest
    return longest, min(getattr(section, "min_rollout_latent_frames", None) or own, longest)


def _whole_track(resolved: ResolvedRun) -> bool:
    """Whether clips are as long as their camera tracks."""
    section: Any = getattr(resolved.config, "inference", None)
    return getattr(section, "length", "fixed") == "camera"


def _levels(config: Any) -> tuple[float, ...]:
    """Noise levels of the few-step rollout of training, falling from 1."""
    shift = config.model.timestep_shift
    levels = [label / RAW_TIMES for label in getattr(config.train, "denoising_step_list", ())]
    return tuple(shift * level / (1 + (shift - 1) * level) for level in levels)


def _passes(resolved: ResolvedRun) -> Any:
    return resolved.config.validation.passes  # type: ignore[attr-defined]
