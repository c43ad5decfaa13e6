"""What one rank does inside an opened run: group, model, resume, clips, loop. Every act stands here
once."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from solarwm.backbones.seam import VideoCodec
from solarwm.camera.poses import latent_rows
from solarwm.checkpoints.store import CheckpointStore
from solarwm.config.resolve import ResolvedRun
from solarwm.data.cameras import CameraRules
from solarwm.data.latent_cache import LatentCache
from solarwm.data.read_policy import ReadPolicy
from solarwm.data.transport.choice import TABLES, open_reader
from solarwm.distributed.collectives import collective_guard
from solarwm.distributed.devices import pick_device
from solarwm.distributed.environment import Launcher
from solarwm.distributed.flight import FlightLog
from solarwm.distributed.group import RankGroup, open_group
from solarwm.distributed.sharding import REPLICATED
from solarwm.runs.manifest import read_run_id
from solarwm.runs.session import RunSession
from solarwm.training.assembly import build_stage
from solarwm.training.clips import ClipGeometry, ClipSource, Skip
from solarwm.training.dataset import TrainingData, open_training_data
from solarwm.training.feed import Feed
from solarwm.training.health import NonFinite
from solarwm.training.initial_weights import teacher_identity
from solarwm.training.loop import LoopEnd, LoopPlan, run_steps
from solarwm.training.opening import wants_validation
from solarwm.training.preencoded import preencoded_clips
from solarwm.training.resuming import Source
from solarwm.training.saving import StageSaver, contract_of, numerics_of
from solarwm.training.stage import Stage
from solarwm.training.threads import limit_threads
from solarwm.training.validating import TrainingValidation
from solarwm.training.warming import encode_ahead

CACHE_FOLDER = "latent-cache"
TELL_S = 0.5


def train_rank(
    session: RunSession,
    resolved: ResolvedRun,
    launcher: Launcher,
    source: Source,
    *,
    last_step: int,
    data: TrainingData | None,
) -> None:
    """Train from `source` to `last_step` on this rank. Collective over all ranks.

    Raises `SolarError`; a signal ends it with `run.terminated` or `run.interrupted` at a step
    boundary.
    """
    config = resolved.config
    session.enter("data")
    data = data or open_training_data(config, num_nodes=launcher.num_nodes)
    limit_threads(config.runtime.threads_per_rank, local_world_size=launcher.local_world_size)
    device = pick_device(config.runtime.device, local_rank=launcher.local_rank)
    session.enter("group")
    with (
        collective_guard("training"),
        open_group(
            launcher,
            device=device,
            sp_size=config.distributed.sequence_parallel_size,
            timeout_s=config.distributed.timeout_s,
            always=config.train.fsdp.strategy not in REPLICATED,
            check_order=config.distributed.check_collectives,
            check_peers_every=config.distributed.check_peers_every,
        ) as group,
    ):
        session.watch_collectives(FlightLog(group))
        session.note_outcome(max_steps=config.train.max_steps)
        session.enter("model")
        stage = build_stage(resolved, group, resuming=source.checkpoint is not None)
        saver = _saver(session, resolved, group, stage, source, data)
        for text in source.notes if session.is_main else ():
            session.emit("note", schema="solarwm.training-event.v1", text=text)
        first_step, cursor = 0, 0
        if source.checkpoint is not None:
            session.enter("resume")
            first_step, cursor = saver.load(source.checkpoint)
            session.note_outcome(step=first_step, last_checkpoint_step=first_step)
            session.emit(
                "resume", step=first_step, occurrences=cursor, checkpoint=str(source.checkpoint)
            )
        if config.save_every:
            saver.require_room()
        session.enter("encode")
        clips = open_clips(session, resolved, data, stage)
        batches = stage.updates_before(last_step) - stage.updates_before(first_step)
        count = batches * config.train.global_batch_size
        session.raise_if_stopped(_encode(session, clips, group, first=cursor, count=count))
        validation = _validation(session, resolved, group, stage)
        session.enter("train")
        end = _loop(
            session,
            resolved,
            group,
            stage,
            saver,
            clips,
            validation,
            LoopPlan(
                first_step=first_step,
                last_step=last_step,
                max_steps=config.train.max_steps,
                save_every=config.save_every,
                save_at_end=config.save_every > 0 or last_step < config.train.max_steps,
                plan_fingerprint=data.fingerprint,
                non_finite=NonFinite(
                    skips=config.train.on_non_finite == "skip", most=config.train.max_non_finite
                ),
                checkpoint_id=source.checkpoint.name if source.checkpoint else "",
            ),
            cursor=cursor,
        )
        session.note_outcome(step=end.step)
        session.raise_if_stopped(end.stop_signal)
        session.enter("end")


def open_clips(
    session: RunSession, resolved: ResolvedRun, data: TrainingData, stage: Stage
) -> ClipSource:
    """The clips of a run's training index: latent records, or raw clips encoded by the backbone's
    codec and kept in its latent cache."""
    config = resolved.config
    model, section = config.model, config.data
    codec = _codec(resolved, stage)
    cache = Path(section.latent_cache_dir or Path(session.layout.root) / CACHE_FOLDER)

    def told(skip: Skip) -> None:
        session.emit(
            "sample_skipped",
            occurrence=skip.occurrence,
            attempt=skip.attempt,
            sample_id=skip.sample_id,
            code=skip.code,
            reason=skip.reason,
        )

    make = partial(preencoded_clips, resolved) if section.encoding == "preencoded" else ClipSource
    return make(
        index=data.index,
        order=data.order,
        reader=open_reader(
            section,
            index=data.index,
            cache_dir=getattr(config.runtime, "data_cache_dir", None),
            cache_max_gib=getattr(config.runtime, "data_cache_max_gib", None),
            local_tables=cache / TABLES,
        ),
        codec=codec,
        cache=LatentCache(cache, codec.digest),
        geometry=ClipGeometry(
            frames=section.pixel_frames,
            height=section.height,
            width=section.width,
            fps=section.fps,
            random_start=section.random_start,
        ),
        rules=CameraRules(
            array_key=section.camera_array_key,
            max_rel_translation=section.max_rel_translation,
            max_camera_abs=section.max_camera_abs,
            latent_rows=tuple(int(row) for row in latent_rows(section.latent_frames)),
            use_source_lens=model.camera_intrinsics_mode == "source",
        ),
        num_latents=section.latent_frames,
        on_skip=told,
        shards_ahead=section.gcs_prefetch_shards,
        policy=ReadPolicy(
            on_bad_sample=section.on_bad_sample, max_bad_samples=section.max_bad_samples
        ),
    )


def _saver(
    session: RunSession,
    resolved: ResolvedRun,
    group: RankGroup,
    stage: Stage,
    source: Source,
    data: TrainingData,
) -> StageSaver:
    section = resolved.config.checkpoint
    store = CheckpointStore(
        Path(session.layout.root),
        keep_last=section.keep_last,
        keep_every=section.keep_every,
        run_id=read_run_id(Path(session.layout.root)),
        protected=[source.checkpoint] if source.checkpoint else [],
        notice=lambda event, fields: session.emit(event, **fields),
    )
    if session.is_main:
        store.clear_leftovers()
    return StageSaver(
        stage,
        store,
        resolved=resolved,
        group=group,
        contract=contract_of(
            resolved,
            data_fingerprint=data.fingerprint,
            data_topology=data.topology,
            teacher=teacher_identity(resolved),
        ),
        session=session,
    )


def _encode(
    session: RunSession, clips: ClipSource, group: RankGroup, *, first: int, count: int
) -> int:
    told_at = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told_at
        if done == total or time.monotonic() - told_at > TELL_S:
            told_at = time.monotonic()
            session.emit("encode_progress", done=done, total=total)

    return encode_ahead(
        clips,
        group=group,
        first=first,
        count=count,
        tell=tell,
        stopped=lambda: session.stop_requested,
    )


def _validation(
    session: RunSession, resolved: ResolvedRun, group: RankGroup, stage: Stage
) -> TrainingValidation | None:
    """Its codec is its own, since the feed may be encoding at the same time."""
    if not wants_validation(resolved.config):
        return None
    return TrainingValidation(
        resolved,
        stage,
        codec=_codec(resolved, stage),
        group=group,
        session=session,
        root=Path(session.layout.root),
        numerics=numerics_of(resolved.config),
    )


def _codec(resolved: ResolvedRun, stage: Stage) -> VideoCodec:
    model: Any = resolved.config.model
    return stage.backbone.codec(
        base_path=Path(model.base_path) if model.base_path else None,
        assets=model.assets,
        device=next(stage.role.module.parameters()).device,
    )


def _loop(
    session: RunSession,
    resolved: ResolvedRun,
    group: RankGroup,
    stage: Stage,
    saver: StageSaver,
    clips: ClipSource,
    validation: TrainingValidation | None,
    plan: LoopPlan,
    *,
    cursor: int,
) -> LoopEnd:
    train: Any = resolved.config.train
    feed = Feed(
        clips,
        place=group.place,
        micro_batch_size=train.micro_batch_size,
        accumulation=train.grad_accum,
        global_batch_size=train.global_batch_size,
        cursor=cursor,
        depth=resolved.config.data.prefetch_factor,
        workers=resolved.config.data.num_workers,
        patience_s=resolved.config.distributed.timeout_s / 2,
        name=clips.sample_id,
        tally=clips.tally,
        policy=clips.policy,
        look_ahead=clips.look_ahead,
    )
    try:
        return run_steps(
            stage,
            feed,
            plan=plan,
            session=session,
            group=group,
            saver=saver,
            validation=validation,
        )
    finally:
        feed.close()
