"""Which held-out clips a generation covers: the published selection, start frames, seeds and
identities.

Standard library and numpy only, so that a plan can be drawn without a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solarwm.errors.types import SolarError
from solarwm.inference.selection import PERMUTATION, CaseRow, SelectionRule, draw_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipIdentity:
    """What a look into the shard adds to a row whose camera the guards accepted."""

    fingerprint: str
    """BLAKE2s of the raw camera member bytes."""
    prompt: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    frames: int = 0
    """Pixel frames of the clip; 0 = as many as every clip of the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One clip to generate; `slot` is its place in the ordered result."""

    slot: int
    row_index: int
    """Position of the clip in the test index."""
    sample_id: str
    prompt: str
    start_frame: int
    noise_seed: int
    camera_fingerprint: str
    metadata: Mapping[str, Any]
    frames: int = 0
    """Pixel frames of the clip; 0 = as many as every clip of the plan."""

    def manifest(self) -> dict[str, Any]:
        """The published `case` block of a sample manifest."""
        return {
            "slot": self.slot,
            "sample_id": self.sample_id,
            "prompt": self.prompt,
            "start_frame": self.start_frame,
            "noise_seed": self.noise_seed,
            "camera_fingerprint": self.camera_fingerprint,
            "metadata": dict(self.metadata),
        }


def start_frame(
    row: CaseRow, slot: int, *, num_frames: int, span_frames: int, starts: str = "row"
) -> int:
    """First source frame of a case: the row's own, else the published draw over every start that
    fits; see `SelectionRule.starts`.

    `num_frames` counts the source frames there are, `span_frames` those a clip reaches over.
    Raises `inference.clip-too-short` (exit 3).
    """
    latest = num_frames - span_frames
    start = 0 if starts == "zero" else row.start_frame
    if starts == "adjusted" and latest >= 0 and start is not None and not 0 <= start <= latest:
        seed = draw_seed(f"variable-rollout-start:{row.key}", 0, 0, slot)
        return int(np.random.RandomState(seed).randint(0, latest + 1))
    if latest < 0 or (start is not None and not 0 <= start <= latest):
        asked = f" from frame {start}" if start is not None else ""
        raise SolarError(
            "inference.clip-too-short",
            f"clip {row.sample_id} cannot give {span_frames} frames{asked}",
            where=row.sample_id,
            why=f"the source has {num_frames} frames",
            fixes=[f"--set data.pixel_frames=N with N at most {num_frames}"],
        )
    if start is not None:
        return start
    generator = np.random.RandomState(draw_seed(row.key, 0, 0, slot))
    return int(generator.randint(0, latest + 1))


def select_cases(
    rows: Sequence[CaseRow],
    count: int,
    *,
    selection_seed: int,
    base_noise_seed: int,
    measure: Callable[[Any], tuple[int, int]],
    identify: Callable[[Any, int], ClipIdentity],
    is_rejection: Callable[[SolarError], bool],
    rule: SelectionRule = PERMUTATION,
) -> tuple[Case, ...]:
    """The first `count` acceptable rows of the published order of `rule`, in slots 0, 1, ...

    `measure(row)` gives the source frames a row has and those a clip reaches over.
    `identify(row, start)` reads a clip's camera and raises where it is unfit; a fault for which
    `is_rejection` holds (a guard) passes on to the next candidate, any other ends the selection.
    Raises `inference.too-few-cases` (exit 3).
    """
    cases: list[Case] = []
    refused, tried = 0, 0
    candidate = rule.candidates(rows, count, selection_seed)
    while len(cases) < count and (row_index := candidate(len(cases))) is not None:
        ordinal, tried = tried, tried + 1
        row, slot = rows[row_index], len(cases)
        num_frames, span_frames = measure(row)
        start = start_frame(
            row, slot, num_frames=num_frames, span_frames=span_frames, starts=rule.starts
        )
        try:
            clip = identify(row, start)
        except SolarError as fault:
            if not is_rejection(fault):
                raise
            refused += 1
            continue
        cases.append(
            Case(
                slot=slot,
                row_index=row_index,
                sample_id=row.sample_id,
                prompt=clip.prompt,
                start_frame=start,
                noise_seed=rule.noise_seed(row, slot, base_noise_seed),
                camera_fingerprint=clip.fingerprint,
                metadata={
                    **clip.metadata,
                    "selection_candidate_ordinal": ordinal,
                    "variable_rollout_start_adjusted": rule.starts == "adjusted"
                    and row.start_frame not in (None, start),
                },
                frames=clip.frames,
            )
        )
    if len(cases) < count:
        raise SolarError(
            "inference.too-few-cases",
            f"the test index gives {len(cases)} usable clips; {count} are asked for",
            why=f"{len(rows)} rows, {refused} refused by the camera guards",
            fixes=[f"--set validation.sample_count={len(cases)}"] if cases else [],
        )
    return tuple(cases)


def owned(cases: Sequence[Case], dp_rank: int, dp_world: int) -> tuple[Case, ...]:
    """The cases of one data-parallel rank: slot s belongs to dp_rank s % dp_world."""
    return tuple(case for case in cases if case.slot % dp_world == dp_rank)
