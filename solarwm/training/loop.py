"""The one loop: accumulate, agree, clip, step, average, tell, save, stop at a boundary."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from solarwm.data.tensors import LatentBatch
from solarwm.distributed.devices import peak_device_bytes, resident_bytes
from solarwm.distributed.group import RankGroup
from solarwm.nn.random import keyed_seed
from solarwm.training.feed import Feed
from solarwm.training.health import NonFinite
from solarwm.training.schedule import due
from solarwm.training.stage import MicroResult, Stage, Update
from solarwm.training.stragglers import StragglerWatch, added
from solarwm.training.updating import Updated, make_update, microbatch_losses, slowest_wait


class Session(Protocol):
    """What the loop asks of the run it belongs to."""

    @property
    def stop_requested(self) -> int | None:
        """The signal that asked for a stop, or None."""
        ...

    def emit(self, event: str, **fields: Any) -> None: ...

    def note_outcome(self, **fields: Any) -> None: ...

    def at_step(self, step: int) -> None: ...

    def at_boundary(self) -> None: ...

    def phase(self, name: str) -> AbstractContextManager[None]: ...


class Saver(Protocol):
    """Writes the checkpoint of a step. Collective over all ranks."""

    def save(self, step: int, *, cursor: int) -> None: ...

    def poll(self) -> None:
        """Raise what a save beside training failed with."""
        ...

    def finish(self) -> None:
        """Wait until every save is complete."""
        ...


class Validation(Protocol):
    """Generates held-out clips at some steps. Collective over all ranks."""

    def is_due(self, step: int) -> bool: ...

    def run(self, step: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPlan:
    """How far to go and what to do on the way; 0 = never."""

    first_step: int
    """Steps completed before this start."""
    last_step: int
    max_steps: int
    """Where the schedule ends; `last_step` may come before it."""
    save_every: int
    save_at_end: bool
    plan_fingerprint: str
    non_finite: NonFinite | None = None
    """What to do with numbers that are not finite; None stops."""
    checkpoint_id: str = ""
    """The checkpoint this start went on from; empty for a new run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEnd:
    """Where the loop ended: `stop_signal` is the agreed signal, or 0."""

    step: int
    stop_signal: int


def run_steps(
    stage: Stage,
    feed: Feed,
    *,
    plan: LoopPlan,
    session: Session,
    group: RankGroup,
    saver: Saver,
    validation: Validation | None = None,
) -> LoopEnd:
    """Train from `first_step` to `last_step`, or to the step at which some rank was asked to stop.

    Raises `train.non-finite` before the optimizer step that would use a bad number. Collective over
    all ranks.
    """
    step, stop_signal = plan.first_step, 0
    stragglers = StragglerWatch()
    with _collection_by_hand():
        while step < plan.last_step and not stop_signal:
            saver.poll()
            session.at_step(step + 1)
            made = _one_step(stage, feed, step=step, plan=plan, session=session, group=group)
            stop_signal = max(updated.agreement.stop_signal for updated in made)
            slow = stragglers.after(added([updated.agreement.pace for updated in made]))
            if slow is not None and group.world_rank == 0:
                session.emit("straggler", schema="solarwm.training-event.v1", step=step + 1, **slow)
            step += 1
            if stop_signal:
                session.at_boundary()
            ending = step == plan.last_step or bool(stop_signal)
            if due(step, plan.save_every) or (ending and plan.save_at_end):
                saver.save(step, cursor=feed.cursor)
                gc.collect()
            if validation is not None and not stop_signal and validation.is_due(step):
                validation.run(step)
                gc.collect()
        saver.finish()
    return LoopEnd(step=step, stop_signal=stop_signal)


def _one_step(
    stage: Stage,
    feed: Feed,
    *,
    step: int,
    plan: LoopPlan,
    session: Session,
    group: RankGroup,
) -> list[Updated]:
    """Every update of one step."""
    started = time.perf_counter()
    planned = stage.updates(step)
    made = [
        make_update(
            update,
            feed,
            step=step,
            global_batch_size=stage.global_batch_size,
            group=group,
            stop_signal=session.stop_requested or 0,
            non_finite=plan.non_finite,
        )
        for update in planned
    ]
    step_time_s = time.perf_counter() - started
    last, ema, several = made[-1], stage.role.ema, group.world_size > 1
    _tell_skipped(made, stage, step=step + 1, session=session)
    session.note_outcome(samples_skipped=last.skipped, bad_samples=last.bad_samples)
    session.emit(
        "optimizer_step",
        schema="solarwm.training-step.v1",
        step=step + 1,
        max_steps=plan.max_steps,
        grad_accum=len(last.batches),
        losses={name: value for updated in made for name, value in updated.losses.items()},
        gradient_norm=last.gradient_norm,
        microbatches=[
            _microbatch(batch, result, update=update, stage=stage, step=step, plan=plan)
            for update, updated in zip(planned, made, strict=True)
            for batch, result in zip(updated.batches, updated.results, strict=True)
        ],
        lr=last.lr,
        roles={updated.role: updated.plain() for updated in made},
        step_time_s=step_time_s,
        data_wait_s=sum(updated.data_wait_s for updated in made),
        slowest_data_wait_s=slowest_wait(made),
        **(added([updated.agreement.pace for updated in made]).plain() if several else {}),
        samples_per_s=len(made) * stage.global_batch_size / step_time_s,
        resident_bytes=resident_bytes(),
        peak_device_bytes=peak_device_bytes(group.device),
        samples_skipped=last.skipped,
        bad_samples=last.bad_samples,
        ema_updates=ema.num_updates if ema is not None else 0,
    )
    return made


def _tell_skipped(made: Sequence[Updated], stage: Stage, *, step: int, session: Session) -> None:
    """An event and a count for every update that was passed over."""
    for updated in made:
        if updated.fault is None:
            continue
        session.emit(
            "update_skipped",
            schema="solarwm.training-event.v1",
            step=step,
            role=updated.role,
            code=updated.fault.code,
            reason=str(updated.fault),
            context=dict(updated.fault.context),
        )
        session.note_outcome(updates_skipped=sum(role.updates_skipped for role in stage.roles))


def _microbatch(
    batch: LatentBatch,
    result: MicroResult,
    *,
    update: Update,
    stage: Stage,
    step: int,
    plan: LoopPlan,
) -> dict[str, Any]:
    return {
        "role": update.role.name,
        "identity": {
            "sample_ids": list(batch.sample_ids),
            "start_frames": list(batch.start_frames),
            "noise_seeds": [keyed_seed(stage.seed, "noise", step, slot) for slot in batch.slots],
            "slots": list(batch.slots),
            "occurrences": list(batch.occurrences),
            "plan_fingerprint": plan.plan_fingerprint,
            "checkpoint_id": plan.checkpoint_id,
        },
        "losses": microbatch_losses(update, result),
    }


@contextmanager
def _collection_by_hand() -> Iterator[None]:
    """No automatic garbage collection in the loop: it would stall ranks at different times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
