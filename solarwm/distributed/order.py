"""The order of collectives: a log a process, and a check that finds ranks out of step before they
wait for each other for ever.

Ranks must make the same collectives in the same order with the same shapes. With the check on, a
rank writes what it is about to do into the store that joined the group and reads what the others
wrote: both name a difference at once, instead of a hang or of numbers that mean something else.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import torch

from solarwm.errors.types import SolarError

KEPT = 256
"""Collectives that a log keeps in full."""
TOLD = 16
"""Collectives that a failure record tells."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.0002, 0.01
_FAREWELL_S = 2.0


class Store(Protocol):
    """What is asked of the key-value store of a process group."""

    def set(self, key: str, value: str, /) -> Any: ...

    def get(self, key: str, /) -> bytes: ...

    def check(self, keys: list[str], /) -> bool: ...

    def delete_key(self, key: str, /) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective as a rank is about to make it."""

    group: str
    """Name of the ranks that take part."""
    number: int
    """Collectives these ranks have made together before, plus one."""
    kind: str
    label: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        shape = f" {list(self.shape)} {self.dtype}" if self.dtype else ""
        return f"#{self.number} of {self.group}: {self.kind} `{self.label}`{shape}"


class CollectiveLog:
    """The collectives of one process in order."""

    def __init__(self, world_rank: int) -> None:
        self.world_rank = world_rank
        self.count = 0
        self.last = "none"
        self.inside = False
        """Whether the last collective has not returned; stays so when it failed."""
        self.recent: deque[Call] = deque(maxlen=KEPT)
        self.check: OrderCheck | None = None
        """Set to compare every collective with the other ranks before it is made."""
        self._numbers: Counter[str] = Counter()
        self._digests: dict[str, bytes] = {}

    def enter(
        self,
        group: str,
        members: tuple[int, ...],
        kind: str,
        label: str,
        tensor: torch.Tensor | None,
    ) -> None:
        """Note a collective that is about to be made. Raises `distributed.order-differs`."""
        self.count += 1
        self._numbers[group] += 1
        self.last = f"#{self.count} {label}"
        call = Call(
            group=group,
            number=self._numbers[group],
            kind=kind,
            label=label,
            shape=() if tensor is None else tuple(tensor.shape),
            dtype="" if tensor is None else str(tensor.dtype).removeprefix("torch."),
        )
        self.recent.append(call)
        before = self._digests.get(group, b"")
        self._digests[group] = blake2b(before + str(call).encode(), digest_size=16).digest()
        if self.check is not None:
            self.check.before(call, members)

    def place(self) -> dict[str, Any]:
        """Where this process is among the collectives, as plain values: the last one, whether it
        has returned, and how many each group of ranks has made. May be called from any thread."""
        return {
            "last_collective": self.last,
            "inside_collective": self.inside,
            "collective_counts": dict(self._numbers.copy()),
        }

    def tail(self) -> list[str]:
        """The latest collectives, oldest first. May be called from any thread."""
        return [str(call) for call in self.recent.copy()][-TOLD:]

    def digest(self, group: str) -> str:
        """Names every collective of `group` so far with its order and shapes."""
        return self._digests.get(group, b"").hex()


class OrderCheck:
    """Compares each collective with what the other ranks are about to make."""

    def __init__(self, store: Store, *, world_rank: int, timeout_s: float) -> None:
        self._store = store
        self._world_rank = world_rank
        self._timeout_s = timeout_s
        self._numbers: dict[str, int] = {}

    def before(self, call: Call, members: tuple[int, ...]) -> None:
        """Return when all members are about to make `call`.

        Raises `distributed.order-differs` (exit 6) on every rank that is about to make another, or
        that waits for one which waits for it elsewhere; `distributed.collective-failed` when a rank
        comes to nothing in time.
        """
        own = json.dumps([call.kind, call.label, list(call.shape), call.dtype])
        self._numbers[call.group] = call.number
        self._store.set(self._key(call, self._world_rank), own)
        here = json.dumps([call.group, call.number, list(members), str(call)])
        self._store.set(f"order/now/{self._world_rank}", here)
        for world_rank in members:
            if world_rank == self._world_rank:
                continue
            theirs = self._await(call, world_rank)
            if theirs != own:
                kind, label, shape, dtype = json.loads(theirs)
                other = Call(
                    group=call.group,
                    number=call.number,
                    kind=kind,
                    label=label,
                    shape=tuple(shape),
                    dtype=dtype,
                )
                raise self._differs(call, world_rank, str(other))
        if call.number > 2:  # whoever came here has read what stood two collectives ago
            self._store.delete_key(f"order/{call.group}/{call.number - 2}/{self._world_rank}")

    def _await(self, call: Call, world_rank: int) -> str:
        key, wait_s = self._key(call, world_rank), _FIRST_WAIT_S
        deadline = time.monotonic() + self._timeout_s
        while not self._store.check([key]):
            elsewhere = self._elsewhere(call, world_rank)
            if elsewhere and not self._store.check([key]):
                raise self._differs(call, world_rank, elsewhere)
            if time.monotonic() > deadline:
                raise SolarError(
                    "distributed.collective-failed",
                    f"rank {world_rank} did not come to the collective `{call.label}` in time",
                    why=f"rank {self._world_rank} waited {self._timeout_s:.0f} s at {call}",
                    context={"collective": call.label, "timed_out": True},
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        return self._store.get(key).decode()

    def _elsewhere(self, call: Call, world_rank: int) -> str:
        """Where a rank waits for this one, if it can only be waiting for ever."""
        key = f"order/now/{world_rank}"
        if not self._store.check([key]):
            return ""
        group, number, members, text = json.loads(self._store.get(key))
        if group == call.group or self._world_rank not in members:
            return ""
        return text if number > self._numbers.get(group, 0) else ""

    def _differs(self, call: Call, world_rank: int, theirs: str) -> SolarError:
        """The error, once the other rank has read this one's place too or had the time to."""
        self._store.set(f"order/differs/{self._world_rank}", "")
        deadline = time.monotonic() + min(self._timeout_s, _FAREWELL_S)
        while time.monotonic() < deadline:
            if self._store.check([f"order/differs/{world_rank}"]):
                break
            time.sleep(_LONGEST_WAIT_S)
        return SolarError(
            "distributed.order-differs",
            f"ranks {self._world_rank} and {world_rank} are about to make different collectives",
            where=call.label,
            why=f"rank {self._world_rank} is at {call}; rank {world_rank} is at {theirs}",
            fixes=["look for code that runs on some ranks only, or in another order"],
            context={
                "world_ranks": sorted((self._world_rank, world_rank)),
                "collective": call.label,
            },
        )

    @staticmethod
    def _key(call: Call, world_rank: int) -> str:
        return f"order/{call.group}/{call.number}/{world_rank}"
