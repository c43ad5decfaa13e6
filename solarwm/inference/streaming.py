"""A chunk by chunk pass of one case, published as it is made: latents are decoded in tiles, frames go
to the encoders and into the figures one by one, and the truth is read beside them.

Shapes: N pixel frames, Y X pixel height and width, f latent frames of a chunk, C latent channels, H W
latent height and width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from solarwm.errors.types import SolarError
from solarwm.inference import quality, video
from solarwm.inference.encoding import EncodedCase
from solarwm.inference.generate import case_track, latent_viewmats, provenance, track_span
from solarwm.inference.plan import PassPlan
from solarwm.inference.rollout import Rolled, TileDecoder, roll, tile_latents
from solarwm.storage.digests import canonical_json

if TYPE_CHECKING:
    from solarwm.inference.passes import Generator


class FrameTaker:
    """Takes the frames of one clip as they are decoded: videos, and figures against the truth."""

    def __init__(
        self, folder: Path, count: int, fps: float, truth: Iterator[np.ndarray] | None
    ) -> None:
        self._left = count
        self._truth = truth
        self._files = ExitStack()
        self._video = self._files.enter_context(video.VideoWriter(folder / "video.mp4", fps))
        self._pair: video.VideoWriter | None = None
        self._figures: quality.RunningFigures | None = None
        if truth is not None:
            self._pair = self._files.enter_context(video.VideoWriter(folder / "compare.mp4", fps))
            self._figures = quality.RunningFigures(count)
        self.shape: tuple[int, ...] = (count,)

    def take(self, frames_NYX3: np.ndarray) -> None:
        """The next frames; those past the end of the clip are dropped."""
        frames = frames_NYX3[: self._left]
        self._left -= len(frames)
        if not len(frames):
            return
        self.shape = (self.shape[0], *frames.shape[1:])
        self._video.write(frames)
        if self._truth is None or self._pair is None or self._figures is None:
            return
        for picture in frames:
            true = next(self._truth)
            self._figures.add(picture, true)
            self._pair.write(np.concatenate([true, picture], axis=1)[None])

    def finish(self) -> dict[str, Any]:
        """Close the files; gives the figures, none without a truth."""
        self._files.close()
        return self._figures.table() if self._figures is not None else {}

    def abandon(self, fault: BaseException) -> None:
        """Close the files of a clip that is thrown away."""
        self._files.__exit__(type(fault), fault, fault.__traceback__)


def publish_stream(
    generator: Generator, encoded: EncodedCase, plan: PassPlan, metrics: dict[str, Any]
) -> None:
    """Make one clip and publish it; fills `metrics`. Collective over the ranks that generate together,
    where a fault of the publishing one waits for the end of the rollout.

    Raises `inference.not-finite` (exit 7), and what reading, encoding and publishing raise.
    """
    case = encoded.inputs.case
    opening, truth = generator.clips.opening(case)
    if not generator.publishes:
        _roll(generator, encoded, plan, lambda chunk: None)
        return
    weights_id = generator.weights_ids[plan.weights]
    count = track_span(case_track(encoded.inputs, plan.camera), plan, generator.backbone)[2]
    tile = tile_latents(count)
    digest = hashlib.blake2s()
    with generator.store.slot(plan.name, case, weights_id=weights_id) as draft:
        taker = FrameTaker(draft.folder, count, generator.fps, truth)
        tiles = TileDecoder(generator.codec.decoder(), tile, taker.take)

        def take(chunk_fCHW: torch.Tensor) -> None:
            digest.update(chunk_fCHW.cpu().contiguous().numpy().tobytes())
            tiles.push(chunk_fCHW)

        try:
            rolled = _roll(generator, encoded, plan, take)
            tiles.finish()
        except BaseException as fault:
            taker.abandon(fault)
            raise
        figures = taker.finish()
        if plan.camera != "source":
            figures.pop("baselines", None)
        source = np.asarray(encoded.inputs.c2w_N44, dtype=np.float64)[:count]
        metrics.update(
            slot=case.slot,
            camera=plan.camera,
            solver=plan.solver,
            num_inference_steps=plan.num_inference_steps,
            generated_latents_finite=True,
            latents_digest=digest.hexdigest(),
            camera_difference=quality.camera_difference(source, rolled.c2w_N44),
            **figures,
        )
        facts = provenance(plan, generator.facts) | {
            "latent_frames": rolled.latents,
            "decode_tile_latents": tile,
            "tail_camera_rows": len(rolled.held_N44) - count,
        }
        video.write_cameras(
            draft.folder,
            rolled.c2w_N44,
            viewmats_F44=latent_viewmats(rolled.held_N44, rolled.latents),
            intrinsics_33=encoded.inputs.intrinsics_33,
            frame_indices=opening.frame_indices[:count],
            fps=generator.fps,
        )
        (draft.folder / "schedule.json").write_bytes(canonical_json(facts))
        draft.shape = taker.shape
        draft.metrics = metrics
        draft.provenance = facts
    chunks = rolled.latents / generator.backbone.spec.chunk_latents
    metrics["seconds_per_chunk"] = rolled.sampling_s / chunks


def _roll(
    generator: Generator,
    encoded: EncodedCase,
    plan: PassPlan,
    take: Callable[[torch.Tensor], None],
) -> Rolled:
    late: list[BaseException] = []

    def checked(chunk_fCHW: torch.Tensor) -> None:
        if not bool(torch.isfinite(chunk_fCHW).all()):
            raise SolarError(
                "inference.not-finite",
                f"pass {plan.name} gave numbers that are not finite",
                where=encoded.inputs.case.sample_id,
                why="the weights or the sampling settings make the solver diverge",
            )
        if late:
            return
        try:
            take(chunk_fCHW)
        except Exception as fault:
            if generator.sequence is None:
                raise
            late.append(fault)

    rolled = roll(
        encoded.inputs,
        plan,
        backbone=generator.backbone,
        module=generator.modules[plan.weights],
        device=generator.device,
        on_chunk=checked,
        autocast=generator.autocast,
    )
    if late:
        raise late[0]
    return rolled
