"""The one loop: accumulate, agree, clip, step, average, tell, save, stop at a boundary."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from solarwm.data.tensors import LatentBatch
from solarwm.distributed.devices import peak_device_bytes, resident_bytes
from solarwm.distributed.group import RankGroup
from solarwm.nn.random import keyed_seed
from solarwm.training import health, optim
from solarwm.training.feed import Feed
from solarwm.training.schedule import due
from solarwm.training.stage import MicroResult, SingleRoleStage


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
    save_every: int
    save_at_end: bool
    plan_fingerprint: str
    checkpoint_id: str = ""
    """The checkpoint this start went on from; empty for a new run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEnd:
    """Where the loop ended: `stop_signal` is the agreed signal, or 0."""

    step: int
    stop_signal: int
    last_saved: int


def run_steps(
    stage: SingleRoleStage,
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
    step, stop_signal, last_saved = plan.first_step, 0, plan.first_step
    with _collection_by_hand():
        while step < plan.last_step and not stop_signal:
            saver.poll()
            session.at_step(step + 1)
            agreement = _one_step(stage, feed, step=step, plan=plan, session=session, group=group)
            step += 1
            stop_signal = agreement.stop_signal
            if stop_signal:
                session.at_boundary()
            ending = step == plan.last_step or bool(stop_signal)
            if due(step, plan.save_every) or (ending and plan.save_at_end):
                saver.save(step, cursor=feed.cursor)
                last_saved = step
                gc.collect()
            if validation is not None and not stop_signal and validation.is_due(step):
                validation.run(step)
                gc.collect()
        saver.finish()
    return LoopEnd(step=step, stop_signal=stop_signal, last_saved=last_saved)


def _one_step(
    stage: SingleRoleStage,
    feed: Feed,
    *,
    step: int,
    plan: LoopPlan,
    session: Session,
    group: RankGroup,
) -> health.StepAgreement:
    started = time.perf_counter()
    role, number = stage.role, step + 1
    role.optimizer.zero_grad(set_to_none=True)
    batches, data_wait_s = feed.step_batches()
    batches = [batch.to(group.device) for batch in batches]
    results = [stage.backward(batch, step=step) for batch in batches]
    replicated = role.layout.name == "none"
    agreement = health.agree(
        group,
        step=number,
        batches=batches,
        results=results,
        loss_names=stage.objective.loss_names,
        local_norm=health.local_norm(role.parameters) if replicated else None,
        stop_signal=session.stop_requested or 0,
        data_wait_s=data_wait_s,
    )
    role.layout.reduce(role.parameters)
    norm = role.layout.norm(role.parameters)
    gradient_norm = float(norm)
    health.check_norm(gradient_norm, step=number, batches=batches)
    optim.clip(role.parameters, norm, role.grad_clip)
    lr = role.base_lr * role.schedule.factor(step)
    optim.set_rate(role.optimizer, lr)
    role.optimizer.step()
    if role.ema is not None:
        role.ema.update(number)
    role.optimizer.zero_grad(set_to_none=True)
    step_time_s = time.perf_counter() - started
    size = stage.global_batch_size
    named = {name: total / size for name, total in agreement.named_sums.items()}
    session.emit(
        "optimizer_step",
        schema="solarwm.training-step.v1",
        step=number,
        max_steps=plan.last_step,
        grad_accum=len(batches),
        losses={**named, "mean": agreement.loss_sum / size},
        gradient_norm=gradient_norm,
        microbatches=[
            _microbatch(batch, result, stage=stage, step=step, plan=plan)
            for batch, result in zip(batches, results, strict=True)
        ],
        lr=lr,
        step_time_s=step_time_s,
        data_wait_s=data_wait_s,
        slowest_data_wait_s=agreement.slowest_data_wait_s,
        samples_per_s=size / step_time_s,
        resident_bytes=resident_bytes(),
        peak_device_bytes=peak_device_bytes(group.device),
        ema_updates=role.ema.num_updates if role.ema is not None else 0,
    )
    return agreement


def _microbatch(
    batch: LatentBatch, result: MicroResult, *, stage: SingleRoleStage, step: int, plan: LoopPlan
) -> dict[str, Any]:
    return {
        "identity": {
            "sample_ids": list(batch.sample_ids),
            "start_frames": list(batch.start_frames),
            "noise_seeds": [keyed_seed(stage.seed, "noise", step, slot) for slot in batch.slots],
            "slots": list(batch.slots),
            "occurrences": list(batch.occurrences),
            "plan_fingerprint": plan.plan_fingerprint,
            "checkpoint_id": plan.checkpoint_id,
        },
        "losses": _means(stage.objective.loss_names, result.metrics),
    }


def _means(names: Sequence[str], metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(metrics[name].double().mean()) for name in names}


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
