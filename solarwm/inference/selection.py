"""The published rules by which families choose held-out clips: order of trial, seeds, start frames.

Standard library only. A rule never looks at ranks: equal indexes and seeds give equal cases anywhere.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun


class CaseRow(Protocol):
    """What the selection reads of an index row."""

    @property
    def sample_id(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def start_frame(self) -> int | None: ...
    @property
    def extra(self) -> Mapping[str, Any]: ...


Candidates = Callable[[int], int | None]
"""The next row to try for a slot; None when there is none left."""


def draw_seed(purpose: str, first: int, second: int, third: int) -> int:
    """S(a,b,c,d): the low 31 bits of the little-endian BLAKE2b-64 of `a|b|c|d` (published
    seeds)."""
    text = f"{purpose}|{first}|{second}|{third}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") & 0x7FFFFFFF


def candidate_order(num_rows: int, selection_seed: int) -> list[int]:
    """Every row index in the published order of trial: `Random(seed).sample(range(n), n)`."""
    return random.Random(selection_seed).sample(range(num_rows), num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRule:
    """How one family chooses."""

    order: str = "permutation"
    """`permutation` of all rows, `draw` of as many rows as cases (none replaces a refused one), or
    `round_robin` over data sets."""
    balanced: bool = True
    """`round_robin` takes data sets in turn; else all rows are one."""
    noise_stride: int | None = None
    """Noise seed of slot n: base + n * stride; None draws S(`validation-noise`, 0, n, base), where the
    row has no seed of its own."""
    starts: str = "row"
    """`row`: the row's own start frame, else drawn, and it must fit; `adjusted`: one that does not fit
    is drawn anew; `zero`: the first frame."""

    def candidates(self, rows: Sequence[CaseRow], count: int, selection_seed: int) -> Candidates:
        """The rows in order of trial."""
        if self.order == "round_robin":
            return _round_robin(rows, selection_seed, balanced=self.balanced)
        number = len(rows)
        if self.order == "draw":
            order = random.Random(selection_seed).sample(range(number), min(count, number))
        else:
            order = candidate_order(number, selection_seed)
        found: Iterator[int] = iter(order)
        return lambda slot: next(found, None)

    def noise_seed(self, row: CaseRow, slot: int, base_seed: int) -> int:
        """Seed of a case's start noise."""
        if self.noise_stride is not None:
            return base_seed + slot * self.noise_stride
        own = row.extra.get("validation_noise_seed")
        if isinstance(own, int) and not isinstance(own, bool):
            return own
        return draw_seed("validation-noise", 0, slot, base_seed)


PERMUTATION = SelectionRule()


def selection_rule(resolved: ResolvedRun) -> SelectionRule:
    """The rule of a route."""
    config: Any = resolved.config
    family, section = resolved.route.family, config.validation
    if family == "ltx25":
        return SelectionRule(order="draw", noise_stride=1)
    if family == "minimax_h3":
        if resolved.route.stage == "stage0p5":
            return SelectionRule(noise_stride=1)
        return SelectionRule(
            order="round_robin",
            balanced=getattr(section, "balance_by_dataset", False),
            noise_stride=1009,
        )
    if getattr(getattr(config, "inference", None), "length", "fixed") == "camera":
        return SelectionRule(starts="zero")
    if getattr(section, "variable_rollout_by_source", False):
        return SelectionRule(starts="adjusted")
    return PERMUTATION


def _round_robin(rows: Sequence[CaseRow], seed: int, *, balanced: bool) -> Candidates:
    """Slot n tries the rows of data set n modulo their number, in the order of SHA-256 of
    `seed:sample_id`, one row a source video."""
    queues: dict[str, deque[int]] = {}
    seen: set[str] = set()
    order = sorted(
        range(len(rows)), key=lambda i: sha256(f"{seed}:{rows[i].sample_id}".encode()).digest()
    )
    for index in order:
        row = rows[index]
        if row.key in seen:
            continue
        seen.add(row.key)
        name = row.sample_id.partition("/")[0] if balanced else ""
        queues.setdefault(name, deque()).append(index)
    names = sorted(queues)

    def candidate(slot: int) -> int | None:
        queue = queues[names[slot % len(names)]] if names else deque()
        return queue.popleft() if queue else None

    return candidate
