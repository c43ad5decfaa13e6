"""Collectives with a memory: each has a label, the last one is known, and a failed one is an error
of code 6."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from solarwm.errors.types import SolarError

_SIGNS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "gloo",
    "nccl",
    "hccl",
    "processgroup",
    "socket timeout",
)


class Collectives:
    """The collectives the engine uses, over all ranks of one launch. With one rank they are
    identities."""

    def __init__(self, *, world_rank: int, world_size: int) -> None:
        self.world_rank = world_rank
        self.world_size = world_size
        self.count = 0
        self.last = "none"

    def sum_(self, tensor: torch.Tensor, *, label: str) -> torch.Tensor:
        """Add `tensor` up over all ranks, in place. Collective over all ranks."""
        if self.world_size > 1:
            with self._entry(label):
                dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
        return tensor

    def start_sum(self, tensor: torch.Tensor, *, label: str) -> Any:
        """Begin `sum_`; the answer has `wait()`. None with one rank. Collective over all ranks."""
        if self.world_size == 1:
            return None
        with self._entry(label):
            return dist.all_reduce(tensor, op=dist.ReduceOp.SUM, async_op=True)

    def finish(self, work: Any, *, label: str) -> None:
        """Wait for what `start_sum` began."""
        if work is not None:
            with collective_guard(label):
                work.wait()

    def gather(self, tensor: torch.Tensor, *, label: str) -> torch.Tensor:
        """`tensor` of every rank, stacked [world_size, ...] in rank order. Collective over all
        ranks."""
        if self.world_size == 1:
            return tensor[None]
        with self._entry(label):
            parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
            dist.all_gather(parts, tensor)
        return torch.stack(parts)

    def gather_objects(self, value: Any, *, label: str) -> list[Any]:
        """A small picklable value of every rank, in rank order. Collective over all ranks."""
        if self.world_size == 1:
            return [value]
        with self._entry(label):
            parts: list[Any] = [None] * self.world_size
            dist.all_gather_object(parts, value)
        return parts

    def barrier(self, *, label: str) -> None:
        """Return when every rank is here. Collective over all ranks."""
        self.gather(torch.zeros(1), label=label)

    @contextmanager
    def _entry(self, label: str) -> Iterator[None]:
        self.count += 1
        self.last = f"#{self.count} {label}"
        with collective_guard(label):
            yield


@contextmanager
def collective_guard(label: str) -> Iterator[None]:
    """Turn a failed collective inside the block into `distributed.collective-failed` (exit 6)."""
    try:
        yield
    except RuntimeError as cause:
        error = as_collective_failure(cause, label=label)
        if error is None:
            raise
        raise error from cause


def as_collective_failure(cause: BaseException, *, label: str) -> SolarError | None:
    """The error of code 6 for a cause that comes from the process group, else None."""
    text = str(cause)
    kinds = (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)
    if not isinstance(cause, kinds) and not any(sign in text.lower() for sign in _SIGNS):
        return None
    timed_out = "timed out" in text.lower() or "timeout" in text.lower()
    return SolarError(
        "distributed.collective-failed",
        f"a rank did not come to the collective `{label}` in time"
        if timed_out
        else f"another rank left during the collective `{label}`",
        why=text.splitlines()[0][:300] if text else type(cause).__name__,
        fixes=["read first_failing_rank in run-result.json: that rank's record has the reason"],
        context={"collective": label, "timed_out": timed_out},
    )


def share_outcome(collectives: Collectives, error: SolarError | None, *, label: str) -> None:
    """Let every rank learn whether all ranks succeeded; raise on all of them if one did not.

    The rank with the error raises it; the others raise `distributed.peer-failed` naming the first
    rank that failed. Only text crosses. Collective over all ranks.
    """
    texts = collectives.gather_objects(None if error is None else str(error), label=label)
    if error is not None:
        raise error
    failed = [(world_rank, text) for world_rank, text in enumerate(texts) if text is not None]
    if failed:
        world_rank, text = failed[0]
        raise SolarError(
            "distributed.peer-failed",
            f"rank {world_rank} failed: {text}",
            where=label,
            why=" | ".join(f"rank {number}: {message}" for number, message in failed),
            context={"world_rank": world_rank},
        )
