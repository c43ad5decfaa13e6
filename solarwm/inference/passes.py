"""The passes of a generation over the cases of one rank: generate, measure, publish, case by case.

Shapes: N pixel frames, Y X pixel height and width, F latent frames, C latent channels, H W latent
height and width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from solarwm.backbones.seam import Backbone, VideoCodec
from solarwm.data.records import RawClip
from solarwm.distributed.collectives import Collectives
from solarwm.distributed.sequence import SequenceGroup
from solarwm.errors.types import SolarError
from solarwm.inference import quality, video
from solarwm.inference.cases import Case
from solarwm.inference.encoding import Clips, EncodedCase, encode_case, encode_opening
from solarwm.inference.flow_loss import flow_losses
from solarwm.inference.generate import generate, provenance
from solarwm.inference.plan import AUTOREGRESSIVE, PassPlan
from solarwm.inference.streaming import publish_stream
from solarwm.inference.transaction import GenerationStore, attempt
from solarwm.storage.digests import blake2s_hex, canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """Everything the passes of one rank share."""

    backbone: Backbone
    modules: Mapping[str, nn.Module]
    """Module per weights name, `live` and `ema`, in eval mode on `device`."""
    weights_ids: Mapping[str, str]
    codec: VideoCodec
    clips: Clips
    store: GenerationStore
    device: torch.device
    fps: float
    world_rank: int
    facts: Mapping[str, Any]
    """Provenance that holds for the whole run."""
    autocast: torch.dtype | None = None
    """Compute dtype where it is not that of the parameters."""
    streams: bool = False
    """Make every pass chunk by chunk as `streaming` does, in memory that does not grow with the clip."""
    sequence: SequenceGroup | None = None
    """Ranks that generate every clip together; the first of them publishes it."""

    @property
    def publishes(self) -> bool:
        """Whether this rank writes what it generates."""
        return self.sequence is None or self.sequence.sp_rank == 0


def missing_slots(
    store: GenerationStore, plans: Sequence[PassPlan], cases: Sequence[Case]
) -> dict[int, tuple[PassPlan, ...]]:
    """Which passes each case still lacks, by slot; whole cases are left out."""
    filled = {plan.name: store.filled(plan.name) for plan in plans}
    missing = {
        case.slot: tuple(plan for plan in plans if case.slot not in filled[plan.name])
        for case in cases
    }
    return {slot: lacking for slot, lacking in missing.items() if lacking}


def of_peers(sequence: SequenceGroup | None, value: Any, *, label: str) -> list[Any]:
    """`value` of every rank that generates the same clips, the publishing one first. Collective
    over them."""
    if sequence is None:
        return [value]
    return sequence.collectives.gather_objects(value, label=label)


def encode_cases(
    generator: Generator,
    cases: Sequence[Case],
    on_fault: Callable[[Case, BaseException], None],
) -> dict[int, EncodedCase]:
    """Read and encode cases by slot; one whose files are bad goes to `on_fault` and is left out, on
    every rank that generates it. Collective over those, if any."""
    encoded: dict[int, EncodedCase] = {}
    for case in cases:

        def make(case: Case = case) -> None:
            if generator.streams:
                encoded[case.slot] = encode_opening(generator.clips, case, generator.codec)
                return
            encoded[case.slot] = encode_case(
                generator.clips,
                case,
                generator.codec,
                geometry=generator.backbone.profile.geometry,
            )

        sound = attempt(make, lambda fault, case=case: on_fault(case, fault))
        if not all(of_peers(generator.sequence, sound, label="case encoded")):
            encoded.pop(case.slot, None)
    return encoded


def mean_latent(
    generator: Generator, encoded: Mapping[int, EncodedCase], collectives: Collectives
) -> np.ndarray | None:
    """Frames [N,Y,X,3] decoded from the mean over the latents of all cases of all ranks; None when
    no case could be encoded, or they are not equally long, or read as they are made. Collective over all
    ranks."""
    if generator.streams:
        return None
    own = [case.latents_FCHW for case in encoded.values()]
    shapes = {
        shape
        for found in collectives.gather_objects(
            [tuple(latents.shape) for latents in own], label="mean latent"
        )
        for shape in found
    }
    if len(shapes) != 1:
        return None
    shape = shapes.pop()
    total = torch.zeros(*shape, dtype=torch.float64)
    for latents in own:
        total += latents
    packed = torch.cat([total.flatten(), torch.tensor([float(len(own))], dtype=torch.float64)])
    packed = collectives.sum_(packed.to(generator.device), label="mean latent").cpu()
    mean = (packed[:-1] / packed[-1]).reshape(shape).float()
    return generator.codec.decode_video(mean).cpu().numpy()


def run_case(
    generator: Generator,
    encoded: EncodedCase,
    plans: Sequence[PassPlan],
    *,
    mean_latent_NYX3: np.ndarray | None,
    on_fault: Callable[[PassPlan, BaseException], None],
    on_clip: Callable[[PassPlan, Mapping[str, Any]], None],
) -> None:
    """Every given pass of one case. A fault of a pass goes to `on_fault`, the others go on.
    Collective over the ranks that generate together, if any."""
    if generator.sequence is not None and generator.sequence.arm(0):
        case = encoded.inputs.case
        generator.sequence.require_equal(
            {
                "sample": case.sample_id,
                "start frame": case.start_frame,
                "noise seed": case.noise_seed,
                "passes": [plan.name for plan in plans],
                "latents": encoded.latents_FCHW,
            },
            label=f"case {case.slot}",
        )
    if generator.streams:
        for plan in plans:
            metrics: dict[str, Any] = {}
            if attempt(
                partial(publish_stream, generator, encoded, plan, metrics),
                partial(on_fault, plan),
            ):
                on_clip(plan, metrics)
        return
    clip = generator.clips.clip(encoded.inputs.case)
    truth = clip.pixels_NYX3
    rebuilt = generator.codec.decode_video(encoded.latents_FCHW).cpu().numpy()
    baselines: dict[str, Any] | None = None
    for plan in plans:
        metrics = {}

        def make(plan: PassPlan = plan, metrics: dict[str, Any] = metrics) -> None:
            nonlocal baselines
            if plan.camera == "source" and baselines is None and encoded.has_truth:
                baselines = quality.baseline_metrics(
                    truth[: len(rebuilt)], rebuilt, mean_latent_NYX3
                )
            _publish(generator, encoded, clip, plan, rebuilt, baselines, metrics)

        if attempt(make, lambda fault, plan=plan: on_fault(plan, fault)):
            on_clip(plan, metrics)


def _publish(
    generator: Generator,
    encoded: EncodedCase,
    truth: RawClip,
    plan: PassPlan,
    rebuilt_NYX3: np.ndarray,
    baselines: Mapping[str, Any] | None,
    metrics: dict[str, Any],
) -> None:
    inputs = encoded.inputs
    module = generator.modules[plan.weights]
    clip = generate(
        inputs,
        plan,
        backbone=generator.backbone,
        module=module,
        codec=generator.codec,
        device=generator.device,
        autocast=generator.autocast,
    )
    if not bool(torch.isfinite(clip.latents_FCHW).all()):
        raise SolarError(
            "inference.not-finite",
            f"pass {plan.name} gave numbers that are not finite",
            where=inputs.case.sample_id,
            why="the weights or the sampling settings make the solver diverge",
        )
    frames = len(clip.frames_NYX3)
    common = min(frames, len(rebuilt_NYX3))
    metrics.update(
        slot=inputs.case.slot,
        camera=plan.camera,
        solver=plan.solver,
        num_inference_steps=plan.num_inference_steps,
        generated_latents_finite=True,
        latents_digest=blake2s_hex(clip.latents_FCHW.float().contiguous().numpy().tobytes()),
        camera_difference=quality.camera_difference(
            np.asarray(inputs.c2w_N44, dtype=np.float64)[:frames], clip.c2w_N44
        ),
    )
    if encoded.has_truth:
        metrics.update(
            quality.pass_metrics(
                clip.frames_NYX3[:common], truth.pixels_NYX3[:common], rebuilt_NYX3[:common]
            )
        )
    if plan.camera == "source" and encoded.has_truth:
        metrics["baselines"] = dict(baselines or {})
        chunk = generator.backbone.spec.chunk_latents if plan.mode == AUTOREGRESSIVE else 1
        whole = len(encoded.latents_FCHW) // chunk * chunk
        metrics["flow_loss"] = flow_losses(
            inputs,
            encoded.latents_FCHW[:whole],
            cameras=("source", "inverse"),
            shift=plan.shift,
            causal=plan.mode == AUTOREGRESSIVE,
            backbone=generator.backbone,
            module=module,
            device=generator.device,
            autocast=generator.autocast,
        )
    if not generator.publishes:
        return
    facts = provenance(plan, generator.facts)
    weights_id = generator.weights_ids[plan.weights]
    with generator.store.slot(plan.name, inputs.case, weights_id=weights_id) as draft:
        video.write_mp4(draft.folder / "video.mp4", clip.frames_NYX3, generator.fps)
        if encoded.has_truth:
            pair = video.side_by_side(truth.pixels_NYX3[:frames], clip.frames_NYX3)
            video.write_mp4(draft.folder / "compare.mp4", pair, generator.fps)
        video.write_cameras(
            draft.folder,
            clip.c2w_N44,
            viewmats_F44=clip.viewmats_F44,
            intrinsics_33=inputs.intrinsics_33,
            frame_indices=truth.frame_indices[:frames],
            fps=generator.fps,
        )
        (draft.folder / "schedule.json").write_bytes(canonical_json(facts))
        draft.shape = tuple(clip.frames_NYX3.shape)
        draft.metrics = metrics
        draft.provenance = facts
    if plan.mode == AUTOREGRESSIVE:
        chunks = len(clip.latents_FCHW) / generator.backbone.spec.chunk_latents
        metrics["seconds_per_chunk"] = clip.sampling_s / chunks
