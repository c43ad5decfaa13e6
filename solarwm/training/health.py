"""Whether a step may be taken: every rank's losses and gradients finite, agreed before the
optimizer moves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from solarwm.data.tensors import LatentBatch
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import gradients, local
from solarwm.errors.types import SolarError
from solarwm.training.stage import MicroResult
from solarwm.training.stragglers import Pace, pace_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAgreement:
    """What all ranks know of a step after one exchange; equal on all of them."""

    loss_sum: float
    """Optimised loss summed over the global batch."""
    named_sums: dict[str, float]
    """The objective's named losses, each summed over the samples of the global batch."""
    stop_signal: int
    """The signal some rank was sent, or 0."""
    slowest_data_wait_s: float
    fault: SolarError | None
    """What was not finite, where that is passed over; None when all numbers are."""
    pace: Pace
    """How long each rank took until here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """What to do with an update whose numbers are not finite."""

    skips: bool
    most: int
    """Updates of a role that may be passed over in the whole run."""

    def may_skip(self, skipped: int) -> bool:
        """Whether one more may be passed over after `skipped`."""
        return self.skips and skipped < self.most


def agree(
    group: RankGroup,
    *,
    step: int,
    batches: Sequence[LatentBatch],
    results: Sequence[MicroResult],
    loss_names: Sequence[str],
    local_norm: torch.Tensor | None,
    stop_signal: int,
    data_wait_s: float,
    began: float,
    stops: bool = True,
) -> StepAgreement:
    """Exchange one short record a rank; raise before the optimizer step if any number is not
    finite.

    The rank with the bad number raises `train.non-finite` (exit 7) naming samples and noise levels,
    the others `distributed.peer-failed` (exit 6). `began` is when this rank's backwards began
    (`time.perf_counter`). Without `stops` the error is not raised but told as `fault`.
    `local_norm` is the norm of this rank's own gradients before they are summed, None where only
    sums exist. Collective over all ranks.
    """
    values = torch.cat([result.per_sample_B.double().cpu() for result in results])
    bad = [index for index, value in enumerate(values.tolist()) if not math.isfinite(value)]
    kind = 1 if bad else 0
    if not bad and local_norm is not None and not math.isfinite(local_norm.item()):
        kind = 2
    sums = [sum(float(r.metrics[name].double().sum()) for r in results) for name in loss_names]
    took_s = data_wait_s + time.perf_counter() - began
    own = torch.tensor(
        [kind, stop_signal, took_s, data_wait_s, float(values.sum()), *sums], dtype=torch.float64
    )
    table = group.collectives.gather(own, label=f"step {step} agreement")
    kinds = table[:, 0].tolist()
    first_bad = next((world_rank for world_rank, found in enumerate(kinds) if found), None)
    fault: SolarError | None = None
    if kind:
        fault = _non_finite(group, step, batches, results, bad)
    elif first_bad is not None:
        fault = SolarError(
            "distributed.peer-failed",
            f"rank {first_bad} found a number that is not finite in step {step}",
            context={"world_rank": first_bad, "step": step},
        )
    if fault is not None and stops:
        raise fault
    samples = table[:: group.place.sp_size]  # peers tell the losses of the same samples
    return StepAgreement(
        loss_sum=float(samples[:, 4].sum()),
        named_sums={name: float(samples[:, 5 + i].sum()) for i, name in enumerate(loss_names)},
        stop_signal=int(table[:, 1].max()),
        slowest_data_wait_s=float(table[:, 3].max()),
        fault=fault,
        pace=pace_of(table[:, 2:4]),
    )


def local_norm(parameters: Iterable[nn.Parameter]) -> torch.Tensor:
    """2-norm of this rank's gradients, fp32. No communication."""
    parts = gradients(parameters)
    return torch.stack(list(torch._foreach_norm(parts, 2.0))).float().norm()


def check_norm(norm: float, *, step: int, batches: Sequence[LatentBatch]) -> None:
    """Refuse a global gradient norm that is not finite, on all ranks alike."""
    if not math.isfinite(norm):
        raise SolarError(
            "train.non-finite",
            f"the gradient of step {step} is not finite",
            why=f"global norm {norm}; samples of this rank: {', '.join(_ids(batches))}",
            context={"step": step, "sample_ids": _ids(batches), "kind": "gradient"},
        )


def check_weights(group: RankGroup, parameters: Iterable[nn.Parameter], *, step: int) -> None:
    """Refuse to save weights that are not finite. Collective over all ranks."""
    parts = [local(parameter.detach()) for parameter in parameters]
    highest = torch.stack([part.abs().max().float() for part in parts if part.numel()]).max()
    bad = torch.tensor([0.0 if math.isfinite(highest.item()) else 1.0])
    group.collectives.sum_(bad, label=f"step {step} weights finite")
    if bad.item():
        raise SolarError(
            "train.non-finite",
            f"the weights after step {step} are not finite",
            why="no checkpoint was written",
            context={"step": step, "kind": "weight"},
        )


def _non_finite(
    group: RankGroup,
    step: int,
    batches: Sequence[LatentBatch],
    results: Sequence[MicroResult],
    bad: Sequence[int],
) -> SolarError:
    ids = _ids(batches)
    slots = [slot for batch in batches for slot in batch.slots]
    sigmas = [
        float(value)
        for result in results
        for value in result.metrics.get(
            "sigma", torch.full((len(result.per_sample_B),), math.nan)
        ).flatten()
    ]
    named = [
        {
            "sample_id": ids[index],
            "slot": slots[index],
            "sigma": sigmas[index] if index < len(sigmas) else None,
        }
        for index in (bad or range(len(ids)))
    ]
    what = "loss" if bad else "gradient"
    places = "; ".join(
        f"sample {n['sample_id']!r} in slot {n['slot']} at sigma {n['sigma']}" for n in named
    )
    return SolarError(
        "train.non-finite",
        f"the {what} of step {step} is not finite on rank {group.world_rank}",
        why=f"{places}; no weight was changed by this step",
        fixes=[
            "solarwm run status RUN_DIRECTORY",
            "look at the named samples",
            "lower train.optimizer.lr",
            "--set train.on_non_finite=skip passes over such updates, up to train.max_non_finite",
        ],
        context={
            "step": step,
            "world_rank": group.world_rank,
            "kind": what,
            "sample_ids": [n["sample_id"] for n in named],
            "samples": named,
        },
    )


def _ids(batches: Sequence[LatentBatch]) -> list[str]:
    return [name for batch in batches for name in batch.sample_ids]
