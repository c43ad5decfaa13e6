"""The one way a clip is made, for inference and for validation: conditions, keyed noise, solver,
decode.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, T text tokens, D
text width, N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from solarwm.backbones.seam import Backbone, VideoCodec
from solarwm.camera import poses, variants
from solarwm.data.tensors import LatentBatch
from solarwm.inference import solvers
from solarwm.inference.cases import Case
from solarwm.inference.causal_field import CausalField
from solarwm.inference.chunked import generate_chunks
from solarwm.inference.plan import AUTOREGRESSIVE, LEAST_CHUNKS, PassPlan
from solarwm.nn.random import keyed_generator


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInputs:
    """What a clip is generated from; `c2w_N44` is the clip's own absolute track."""

    case: Case
    anchor_CHW: torch.Tensor
    """Latent of the first pixel frame, fp32."""
    text_TD: torch.Tensor
    c2w_N44: np.ndarray
    other_c2w_N44: np.ndarray
    """The track of the next case, for the pass that is driven by a stranger's camera."""
    intrinsics_33: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A finished clip."""

    frames_NYX3: np.ndarray
    latents_FCHW: torch.Tensor
    c2w_N44: np.ndarray
    """Absolute track it was driven with."""
    viewmats_F44: np.ndarray
    sampling_s: float
    """Seconds the transformer took, decoding not counted."""


def case_track(inputs: CaseInputs, camera: str) -> np.ndarray:
    """The absolute camera-to-world track [N,4,4] of a camera variant, starting at the clip's own
    first pose."""
    source = np.asarray(inputs.c2w_N44, dtype=np.float64)
    if camera == "source":
        return source
    if camera == "other":
        return variants.other(source, np.asarray(inputs.other_c2w_N44, dtype=np.float64))
    return variants.VARIANTS[camera](source)


def case_batch(
    inputs: CaseInputs, frames: int, c2w_N44: np.ndarray, *, shared: bool = False
) -> LatentBatch:
    """A batch of one of `frames` latents that hold the anchor in frame 0 and zeros elsewhere; with
    `shared` the anchor in every frame, in the memory of one."""
    channels, height, width = inputs.anchor_CHW.shape
    if shared:
        latents = inputs.anchor_CHW.expand(1, frames, channels, height, width)
    else:
        latents = torch.zeros(1, frames, channels, height, width)
        latents[0, 0] = inputs.anchor_CHW
    return latent_batch(inputs, latents, c2w_N44)


def latent_batch(
    inputs: CaseInputs, latents_BFCHW: torch.Tensor, c2w_N44: np.ndarray
) -> LatentBatch:
    """A batch of one over given latents and an absolute camera track."""
    viewmats = latent_viewmats(c2w_N44, latents_BFCHW.shape[1])
    return LatentBatch(
        latents_BFCHW=latents_BFCHW,
        text_BTD=inputs.text_TD[None],
        viewmats_BF44=torch.from_numpy(viewmats)[None],
        intrinsics_B33=torch.from_numpy(np.asarray(inputs.intrinsics_33, dtype=np.float32))[None],
        sample_ids=(inputs.case.sample_id,),
        start_frames=(inputs.case.start_frame,),
        slots=(inputs.case.slot,),
        occurrences=(inputs.case.slot,),
    )


def latent_viewmats(c2w_N44: np.ndarray, num_latents: int) -> np.ndarray:
    """First-frame-relative world-to-camera [F,4,4] fp32 at the pixel frame each latent starts
    with."""
    track = np.asarray(c2w_N44, dtype=np.float32)
    return np.ascontiguousarray(
        poses.viewmats(track[list(poses.latent_rows(num_latents))]), dtype=np.float32
    )


def start_noise(case: Case, shape_FCHW: tuple[int, ...]) -> torch.Tensor:
    """Start noise of a case, fp32 on the CPU: its own generator, so ranks and order never
    matter."""
    generator = torch.Generator().manual_seed(case.noise_seed)
    return torch.randn(shape_FCHW, generator=generator, dtype=torch.float32)


@torch.inference_mode()
def generate(
    inputs: CaseInputs,
    plan: PassPlan,
    *,
    backbone: Backbone,
    module: nn.Module,
    codec: VideoCodec,
    device: torch.device,
    autocast: torch.dtype | None = None,
) -> Generated:
    """One clip of one pass. Equal inputs give equal frames on any topology; draws only from the
    case's seed.

    `autocast` is the dtype the transformer computes in where its parameters are of another.
    """
    track = case_track(inputs, plan.camera)
    frames, track, asked = track_span(track, plan, backbone)
    batch = case_batch(inputs, frames, track).to(device)
    started = time.perf_counter()
    with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        latents = _sample(inputs.case, plan, batch, backbone=backbone, module=module)
    sampling_s = time.perf_counter() - started
    pixels = codec.decode_video(latents[0])
    return Generated(
        frames_NYX3=pixels[:asked].cpu().numpy(),
        latents_FCHW=latents[0].cpu(),
        c2w_N44=track[:asked],
        viewmats_F44=latent_viewmats(track, frames),
        sampling_s=sampling_s,
    )


def track_span(
    track_N44: np.ndarray, plan: PassPlan, backbone: Backbone
) -> tuple[int, np.ndarray, int]:
    """(latent frames, the camera track over them, pixel frames to keep).

    A pass as long as the camera track generates whole chunks that cover it, three at least, the last
    pose held, and keeps exactly its frames.
    """
    geometry, chunk = backbone.profile.geometry, backbone.spec.chunk_latents
    if plan.latents:
        frames = min(plan.latents, geometry.latents(len(track_N44)) or plan.latents)
        track = track_N44[: geometry.frames(frames)]
        return frames, track, len(track)
    frames = LEAST_CHUNKS * chunk
    while (geometry.frames(frames) or 0) < len(track_N44):
        frames += chunk
    held = (geometry.frames(frames) or 0) - len(track_N44)
    track = np.concatenate([track_N44, np.repeat(track_N44[-1:], held, axis=0)])
    return frames, track, len(track_N44)


def _sample(
    case: Case, plan: PassPlan, batch: LatentBatch, *, backbone: Backbone, module: nn.Module
) -> torch.Tensor:
    """Clean latents [1,F,C,H,W]: all at once, or chunk by chunk."""
    clean = batch.latents_BFCHW
    conditions = backbone.conditions(batch)
    noise = start_noise(case, tuple(clean.shape[1:]))[None].to(clean.device)
    if plan.mode == AUTOREGRESSIVE:
        field = CausalField(backbone, module, conditions, clean, delta_policy=plan.delta_policy)
        return generate_chunks(field, noise, **chunk_settings(case, plan, backbone, clean))
    anchor = clean[:, 0] if backbone.spec.first_frame_anchored else None
    solver = solvers.create(plan.solver, numerics=plan.numerics, levels=plan.levels)
    settings = {"num_steps": plan.num_inference_steps, "shift": plan.shift, "anchor_BCHW": anchor}

    def velocity(latents_BFCHW: torch.Tensor, sigma_BF: torch.Tensor) -> torch.Tensor:
        return backbone.velocity(module, latents_BFCHW, sigma_BF, conditions)

    return solver.sample(velocity, noise, **settings)


def chunk_settings(
    case: Case, plan: PassPlan, backbone: Backbone, clean_BFCHW: torch.Tensor
) -> dict[str, Any]:
    """How a chunk by chunk pass samples: the settings of `roll_chunks` and `generate_chunks`."""
    return {
        "solver": solvers.create(plan.solver, numerics=plan.numerics, levels=plan.levels),
        "num_steps": plan.num_inference_steps,
        "shift": plan.shift,
        "anchor_BCHW": clean_BFCHW[:, 0] if backbone.spec.first_frame_anchored else None,
        "chunk_frames": backbone.spec.chunk_latents,
        "generator": keyed_generator(case.noise_seed, "renoise", 0, case.slot),
        "context_sigma": plan.context_sigma,
        "recall_history": plan.recall_history,
    }


def provenance(plan: PassPlan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """How a clip came to be, for its manifest."""
    return {
        **facts,
        "pass": plan.name,
        "weights": plan.weights,
        "solver": plan.solver,
        "num_inference_steps": plan.num_inference_steps,
        "timestep_shift": plan.shift,
        "camera": plan.camera,
        "latent_frames": plan.latents,
        "mode": plan.mode,
    }
