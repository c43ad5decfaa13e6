"""Doing one thing on all ranks of a group so that a failure on any of them is a failure on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import torch.distributed as dist

from solarwm.errors.types import SolarError

T = TypeVar("T")


class Outcome(Generic[T]):
    """What one rank's share of the work gave: a value, or a fault told in words."""

    __slots__ = ("code", "text", "value")

    def __init__(self, value: T | None, code: str = "", text: str = "") -> None:
        self.value = value
        self.code = code
        self.text = text


class Ranks:
    """The ranks that save or load together; without a process group, this process alone.

    Every method is a collective of the group: all ranks must call it, in the same order. A rank
    that fails raises its own fault; the others raise `checkpoint.peer-failed` (exit 6) which names
    it.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        alone = not (dist.is_available() and dist.is_initialized())
        self._group = group
        self.size = 1 if alone else dist.get_world_size(group)
        self.index = 0 if alone else dist.get_rank(group)

    @property
    def leads(self) -> bool:
        """Whether this rank does what only one may do."""
        return self.index == 0

    def together(self, work: Callable[[], T]) -> list[T]:
        """Run `work` on every rank; the leader gets all values in rank order, the others none."""
        value, fault = _attempt(work)
        if self.size == 1:
            if fault is not None:
                raise fault
            return [cast(T, value)]
        mine = Outcome(value, *_told(fault))
        gathered: list[Any] | None = [None] * self.size if self.leads else None
        verdict: list[Any] = [None]
        with _Peers(fault):
            dist.gather_object(mine, gathered, group=self._group, group_dst=0)
            outcomes = cast("list[Outcome[T]]", gathered or [])
            if self.leads:
                verdict = [_first_failure(outcomes)]
            dist.broadcast_object_list(verdict, group=self._group, group_src=0)
        _raise(fault, verdict[0])
        return [cast(T, outcome.value) for outcome in outcomes]

    def lead(self, work: Callable[[], Sequence[T]]) -> T:
        """Run `work` on the leader, which gives one value per rank; each rank gets its own."""
        values, fault = _attempt(work) if self.leads else (None, None)
        if self.size == 1:
            if fault is not None or values is None:
                raise fault or RuntimeError("the leader gave no values")
            return values[0]
        received: list[Any] = [None]
        outgoing: list[Any] | None = None
        if self.leads:
            code, text = _told(fault)
            parts: Sequence[Any] = values if values is not None else [None] * self.size
            outgoing = [Outcome(part, code, text) for part in parts]
        with _Peers(fault):
            dist.scatter_object_list(received, outgoing, group=self._group, group_src=0)
        mine = cast("Outcome[T]", received[0])
        _raise(fault, (0, mine.code, mine.text) if mine.code else None)
        return cast(T, mine.value)


class _Peers:
    """Turns a broken collective into the local fault, or into one that says a peer is gone."""

    __slots__ = ("_fault",)

    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, RuntimeError):
            if self._fault is not None:
                raise self._fault
            raise _peer_failed(None, "", str(error).splitlines()[0][:200]) from error


def _attempt(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as fault:
        return None, fault


def _told(fault: Exception | None) -> tuple[str, str]:
    if fault is None:
        return "", ""
    if isinstance(fault, SolarError):
        return fault.code, str(fault)
    return "bug.unexpected", f"{type(fault).__name__}: {fault}"


def _first_failure(outcomes: Sequence[Outcome[Any]]) -> tuple[int, str, str] | None:
    for index, outcome in enumerate(outcomes):
        if outcome.code:
            return index, outcome.code, outcome.text
    return None


def _raise(fault: Exception | None, failure: tuple[int, str, str] | None) -> None:
    if fault is not None:
        raise fault
    if failure is not None:
        raise _peer_failed(*failure)


def _peer_failed(index: int | None, code: str, text: str) -> SolarError:
    who = f"rank {index}" if index is not None else "another rank"
    return SolarError(
        "checkpoint.peer-failed",
        f"{who} failed while saving or loading a checkpoint",
        why=f"{text} [{code}]" if code else text,
        context={"first_failing_rank": index, "first_failing_code": code},
    )
