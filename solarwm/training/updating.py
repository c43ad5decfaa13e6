"""One optimizer update of one role: accumulate, agree, reduce, clip, step, average."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from solarwm.data.read_policy import Tally
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.collectives import share_outcome
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import REPLICATED
from solarwm.errors.types import SolarError
from solarwm.training import health, optim
from solarwm.training.feed import Feed
from solarwm.training.peers import require_equal_peers
from solarwm.training.stage import MicroResult, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """What an update left to tell."""

    role: str
    number: int
    """Updates this role has had, this one included."""
    losses: dict[str, float]
    """Named losses of the global batch, and the optimised loss as `mean`."""
    gradient_norm: float
    lr: float
    batches: tuple[LatentBatch, ...]
    results: tuple[MicroResult, ...]
    data_wait_s: float
    skipped: int
    """Refusals of this start so far, over all ranks."""
    bad_samples: int
    """Samples that could not be read so far in this start, over all ranks."""
    agreement: health.StepAgreement
    fault: SolarError | None = None
    """Why the role was not moved; None when it was."""

    def plain(self) -> dict[str, Any]:
        """For the step's event."""
        told = {"update": self.number, "gradient_norm": self.gradient_norm, "lr": self.lr}
        return {**told, "skipped": True} if self.fault is not None else told


def make_update(
    update: Update,
    feed: Feed,
    *,
    step: int,
    global_batch_size: int,
    group: RankGroup,
    stop_signal: int,
    non_finite: health.NonFinite | None = None,
) -> Updated:
    """Take the next global batch and move the role, in the step after `step` completed ones.

    Raises `train.non-finite` before the optimizer would use a bad number, unless `non_finite` lets
    the update pass: then weights, optimizer, average and objective stay as they were. Collective over all
    ranks.
    """
    role, number = update.role, step + 1
    stops = non_finite is None or not non_finite.may_skip(role.updates_skipped)
    role.optimizer.zero_grad(set_to_none=True)
    made, data_wait_s, (skipped, bad_samples) = _agreed_batches(feed, group)
    batches = [batch.to(group.device) for batch in made]
    require_equal_peers(group, batches, step=step)
    began = time.perf_counter()
    results = [update.backward(batch) for batch in batches]
    replicated = role.layout.name in REPLICATED
    agreement = health.agree(
        group,
        step=number,
        batches=batches,
        results=results,
        loss_names=update.loss_names,
        local_norm=health.local_norm(role.parameters) if replicated else None,
        stop_signal=stop_signal,
        data_wait_s=data_wait_s,
        began=began,
        stops=stops,
    )
    role.layout.reduce(role.parameters)
    norm = role.layout.norm(role.parameters)
    gradient_norm = float(norm)
    fault = agreement.fault
    try:
        health.check_norm(gradient_norm, step=number, batches=batches)
    except SolarError as error:
        if stops:
            raise
        fault = fault or error
    lr = role.base_lr * role.schedule.factor(update.number)
    optim.set_rate(role.optimizer, lr)
    if fault is None:
        optim.clip(role.parameters, norm, role.grad_clip)
        role.optimizer.step()
        if role.ema is not None:
            role.ema.update(update.number + 1)
        update.finish(agreement.named_sums)
    else:
        role.updates_skipped += 1
    role.optimizer.zero_grad(set_to_none=True)
    return Updated(
        role=role.name,
        number=update.number + 1,
        losses={
            **update.report(agreement.named_sums, global_batch_size),
            "mean": agreement.loss_sum / global_batch_size,
        },
        gradient_norm=gradient_norm,
        lr=lr,
        batches=tuple(batches),
        results=tuple(results),
        data_wait_s=data_wait_s,
        skipped=skipped,
        bad_samples=bad_samples,
        agreement=agreement,
        fault=fault,
    )


def _agreed_batches(
    feed: Feed, group: RankGroup
) -> tuple[list[LatentBatch], float, tuple[int, int]]:
    """The next microbatches, once every rank has its own; how much was passed over so far.

    A rank whose data failed raises its fault and the others `distributed.peer-failed`, before any
    of them is inside a collective of the model; too many bad samples end all ranks alike
    (`data.too-many-bad-samples`). Collective over all ranks.
    """
    fault: SolarError | None = None
    taken: tuple[list[LatentBatch], float] = ([], 0.0)
    try:
        taken = feed.step_batches()
    except SolarError as error:
        fault = error
    # Ranks that share samples skip the same ones; the first of them counts.
    tally = feed.passed_over() if not group.place.sp_rank else Tally()
    mine = [float(fault is not None), float(tally.skipped), float(len(tally.bad))]
    table = torch.tensor(mine, device=group.device)
    failed, skipped, bad = group.collectives.sum_(table, label="data").tolist()
    if failed:
        share_outcome(group.collectives, fault, label="data")
    if bad and group.world_size > 1:
        # Two ranks may have met the same sample.
        sets = group.collectives.gather_objects(tally.bad, label="bad samples")
        known = frozenset().union(*sets)
    else:
        known = tally.bad
    feed.policy.require_few(known)
    return (*taken, (int(skipped), len(known)))


def microbatch_losses(update: Update, result: MicroResult) -> dict[str, float]:
    """The named losses of one microbatch of this rank."""
    sums = {name: float(result.metrics[name].double().sum()) for name in update.loss_names}
    return update.report(sums, len(result.per_sample_B))


def slowest_wait(updates: Sequence[Updated]) -> float:
    """Seconds the slowest rank waited for data, over all updates of a step."""
    return sum(updated.agreement.slowest_data_wait_s for updated in updates)
