"""A world that goes on chunk by chunk while somebody holds keys: generation without an end.

Shapes: B batch (1), F latent frames, f latent frames of a chunk, C latent channels, H W latent
height and width, T text tokens, D text width, N pixel frames, Y X pixel height and width.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from solarwm.backbones.seam import Backbone, VideoCodec
from solarwm.camera import poses
from solarwm.camera.trajectory import STEP_MOVE, STEP_TURN_DEG, Walker
from solarwm.data.tensors import LatentBatch
from solarwm.errors.types import SolarError
from solarwm.inference import solvers
from solarwm.inference.causal_field import CausalField
from solarwm.inference.chunked import sample_chunk
from solarwm.inference.own_clip import KEY_FRAMES
from solarwm.inference.plan import PassPlan
from solarwm.nn.random import keyed_generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a world begins."""

    name: str
    picture_YX3: np.ndarray
    """uint8 RGB, already of the size the model generates."""
    prompt: str
    intrinsics_33: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedChunk:
    """What one chunk gave."""

    number: int
    frames_NYX3: np.ndarray
    """uint8 pixel frames."""
    c2w_N44: np.ndarray
    """Their camera-to-world poses, seen from the first frame of all, float64."""
    sampling_s: float
    decoding_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The parts every world of one program shares."""

    backbone: Backbone
    module: nn.Module
    codec: VideoCodec
    plan: PassPlan
    """An autoregressive pass: solver, steps, shift, context noise."""
    device: torch.device
    autocast: torch.dtype | None = None


class World:
    """One walk. Memory does not grow with its length: the cache holds the window, the decoder its
    own past, and nothing else is kept. Not for several threads at once.

    Noise of chunk n comes from (`seed`, "play-noise", n), so equal keys give equal frames.
    """

    def __init__(self, engine: Engine, start: Start, *, seed: int) -> None:
        self._engine = engine
        self._seed = seed
        self._start = start
        codec, self._chunk = engine.codec, engine.backbone.spec.chunk_latents
        picture_1YX3 = torch.from_numpy(np.ascontiguousarray(start.picture_YX3))[None]
        self._anchor_CHW = codec.encode_video(picture_1YX3)[0].float().cpu()
        self._text_BTD = codec.encode_text([start.prompt]).float().cpu()
        self._lens_B33 = torch.from_numpy(np.asarray(start.intrinsics_33, dtype=np.float32))[None]
        self._geometry = engine.backbone.profile.geometry
        self._walker = Walker(
            1, step_move=STEP_MOVE / KEY_FRAMES, step_turn_deg=STEP_TURN_DEG / KEY_FRAMES
        )
        self._number = 0
        self._decoder = codec.decoder()
        self._renoise = keyed_generator(seed, "renoise", 0, 0)
        self._view_F44 = np.zeros((0, 4, 4), dtype=np.float32)
        """World-to-camera of the latents of the window and this chunk, seen from the first frame."""
        self._history_BFCHW = self._latents(0)
        self._field = _LiveField(self, self._latents(self._chunk))

    @property
    def chunk_latents(self) -> int:
        """Latent frames of a chunk."""
        return self._chunk

    @torch.inference_mode()
    def advance(self, keys: str = "") -> PlayedChunk:
        """The next chunk, with these keys held all through it.

        Raises `inference.not-finite` (exit 7) where the model diverges; the world cannot go on then.
        """
        engine, number, started = self._engine, self._number, time.perf_counter()
        plan, first = engine.plan, self._number * self._chunk
        track_N44 = self._walk(keys)
        noise = torch.randn(
            self._latents(self._chunk).shape,
            generator=keyed_generator(self._seed, "play-noise", number, 0),
        ).to(engine.device)
        dtype = engine.autocast
        with torch.autocast(engine.device.type, dtype=dtype, enabled=dtype is not None):
            if plan.recall_history and first:
                self._field.anew(self._history_BFCHW, first, sigma=plan.context_sigma)
            chunk = sample_chunk(
                self._field,
                noise,
                first,
                solver=solvers.create(plan.solver, numerics=plan.numerics, levels=plan.levels),
                num_steps=plan.num_inference_steps,
                shift=plan.shift,
                anchor_BCHW=self._anchor_CHW[None].to(engine.device) if not number else None,
                generator=self._renoise,
            ).float()
            if not bool(torch.isfinite(chunk).all()):
                raise SolarError(
                    "inference.not-finite",
                    f"chunk {number} gave numbers that are not finite",
                    where=self._start.name,
                    why="the weights or the sampling settings make the solver diverge",
                )
            self._remember(chunk, first)
        sampled = time.perf_counter()
        frames = self._decoder.push(chunk[0]).cpu().numpy()
        self._number += 1
        return PlayedChunk(
            number=number,
            frames_NYX3=frames,
            c2w_N44=track_N44,
            sampling_s=sampled - started,
            decoding_s=time.perf_counter() - sampled,
        )

    def conditions(self, start: int, stop: int) -> Any:
        """What the model needs to know of the latent frames start..stop-1, which are among the
        newest."""
        end = (self._number + 1) * self._chunk
        count = len(self._view_F44)
        view = self._view_F44[start - end + count : stop - end + count]
        batch = LatentBatch(
            latents_BFCHW=self._latents(stop - start),
            text_BTD=self._text_BTD,
            viewmats_BF44=torch.from_numpy(np.ascontiguousarray(view))[None],
            intrinsics_B33=self._lens_B33,
            sample_ids=(self._start.name,),
            start_frames=(0,),
            slots=(0,),
            occurrences=(0,),
        )
        return self._engine.backbone.conditions(batch.to(self._engine.device))

    def _walk(self, keys: str) -> np.ndarray:
        """Poses of the pixel frames of this chunk; takes in those its latents look at."""
        begin, end = self._number * self._chunk, (self._number + 1) * self._chunk
        before = self._geometry.frames(begin) if begin else 0
        after = self._geometry.frames(end)
        if before is None or after is None:
            raise ValueError(f"{end} latent frames are no whole chunks of this codec")
        track = [] if begin else [self._walker.pose[None]]
        track += [self._walker.walk(keys) for _ in range(after - before - len(track))]
        track_N44 = np.concatenate(track)
        rows = np.asarray(poses.latent_rows(end)[begin:]) - before
        view = poses.invert_se3(track_N44[rows].astype(np.float32))
        spare = max(0, len(self._view_F44) - self._window_frames())
        self._view_F44 = np.concatenate([self._view_F44[spare:], view])
        return track_N44

    def _remember(self, chunk_BfCHW: torch.Tensor, first: int) -> None:
        plan = self._engine.plan
        if plan.recall_history:
            history = torch.cat([self._history_BFCHW.to(chunk_BfCHW), chunk_BfCHW], dim=1)
            self._history_BFCHW = history[:, max(0, history.shape[1] - self._window_frames()) :]
        else:
            self._field.commit(chunk_BfCHW, first, sigma=plan.context_sigma)

    def _window_frames(self) -> int:
        window = self._engine.backbone.window
        return (window.prior_chunks or 0) * window.chunk_frames

    def _latents(self, frames: int) -> torch.Tensor:
        return torch.zeros(1, frames, *self._anchor_CHW.shape)


class _LiveField(CausalField):
    """A causal model whose cameras become known chunk by chunk."""

    def __init__(self, world: World, latents_BFCHW: torch.Tensor) -> None:
        engine = world._engine
        super().__init__(
            engine.backbone,
            engine.module,
            None,
            latents_BFCHW.to(engine.device),
            delta_policy=engine.plan.delta_policy,
        )
        self._world = world

    def part(self, latents_BfCHW: torch.Tensor, start: int) -> Any:
        """The conditions of frames that are just now walked through."""
        return self._world.conditions(start, start + latents_BfCHW.shape[1])


def check_endless(backbone: Backbone, *, config_key: str = "model.max_prior_clean_chunks") -> None:
    """Refuse (exit 2) a model that looks back at everything: its memory would grow without end."""
    if backbone.window.prior_chunks is None:
        raise SolarError(
            "play.not-causal",
            "this model looks back at every chunk, so a walk cannot go on without end",
            where=config_key,
            fixes=[f"--set {config_key}=5"],
        )
