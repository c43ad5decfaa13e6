"""Collectives with a memory: each has a label, the last one is known, and a failed one is an error
of code 6."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from solarwm.distributed.order import CollectiveLog
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
    """The collectives the engine uses, over all ranks of one launch or over some of them. With one
    rank they are identities. All of a process share one log."""

    def __init__(
        self,
        *,
        world_rank: int,
        world_size: int,
        members: tuple[int, ...] | None = None,
        process_group: dist.ProcessGroup | None = None,
        name: str = "world",
        log: CollectiveLog | None = None,
    ) -> None:
        self.world_rank = world_rank
        self.world_size = world_size
        self.members = tuple(range(world_size)) if members is None else members
        """World ranks that take part, ascending."""
        self.name = name
        self.log = log or CollectiveLog(world_rank)
        self._process_group = process_group

    @property
    def size(self) -> int:
        """Ranks that take part."""
        return len(self.members)

    @property
    def last(self) -> str:
        """The latest collective of this process, whichever ranks took part."""
        return self.log.last

    def among(self, members: tuple[int, ...], process_group: Any, *, name: str) -> Collectives:
        """The same over `members` alone, in the same log."""
        return Collectives(
            world_rank=self.world_rank,
            world_size=self.world_size,
            members=members,
            process_group=process_group,
            name=name,
            log=self.log,
        )

    def sum_(self, tensor: torch.Tensor, *, label: str) -> torch.Tensor:
        """Add `tensor` up over the ranks, in place. Collective."""
        if self.size > 1:
            with self._entry("sum", label, tensor):
                dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=self._process_group)
        return tensor

    def start_sum(self, tensor: torch.Tensor, *, label: str) -> Any:
        """Begin `sum_`; the answer has `wait()`. None with one rank. Collective."""
        if self.size == 1:
            return None
        with self._entry("sum", label, tensor):
            return dist.all_reduce(
                tensor, op=dist.ReduceOp.SUM, group=self._process_group, async_op=True
            )

    def finish(self, work: Any, *, label: str) -> None:
        """Wait for what `start_sum` began."""
        if work is not None:
            self.log.inside = True
            with collective_guard(label):
                work.wait()
            self.log.inside = False

    def gather(self, tensor: torch.Tensor, *, label: str) -> torch.Tensor:
        """`tensor` of every rank, stacked [ranks, ...] in rank order. Collective."""
        if self.size == 1:
            return tensor[None]
        with self._entry("gather", label, tensor):
            parts = [torch.empty_like(tensor) for _ in range(self.size)]
            dist.all_gather(parts, tensor, group=self._process_group)
        return torch.stack(parts)

    def exchange(self, parts: torch.Tensor, *, label: str) -> torch.Tensor:
        """[ranks, ...]: part i goes to the i-th rank; what came, in rank order. Collective."""
        if self.size == 1:
            return parts
        with self._entry("exchange", label, parts):
            came = torch.empty_like(parts, memory_format=torch.contiguous_format)
            dist.all_to_all_single(came, parts.contiguous(), group=self._process_group)
        return came

    def gather_objects(self, value: Any, *, label: str) -> list[Any]:
        """A small picklable value of every rank, in rank order. Collective."""
        if self.size == 1:
            return [value]
        with self._entry("gather objects", label, None):
            parts: list[Any] = [None] * self.size
            dist.all_gather_object(parts, value, group=self._process_group)
        return parts

    def barrier(self, *, label: str) -> None:
        """Return when every rank is here. Collective."""
        self.gather(torch.zeros(1), label=label)

    @contextmanager
    def _entry(self, kind: str, label: str, tensor: torch.Tensor | None) -> Iterator[None]:
        self.log.enter(self.name, self.members, kind, label, tensor)
        self.log.inside = True
        with collective_guard(label):
            yield
        self.log.inside = False


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
