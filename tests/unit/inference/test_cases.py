from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from solarwm.errors.types import SolarError
from solarwm.inference.cases import ClipIdentity, owned, select_cases, start_frame
from solarwm.inference.selection import PERMUTATION, candidate_order, draw_seed


@dataclass(frozen=True)
class _Row:
    sample_id: str
    num_frames: int = 100
    start_frame: int | None = None
    extra: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.sample_id.replace("/", "__")


def _identify(row, start):
    return ClipIdentity(fingerprint=f"{row.sample_id}:{start}", prompt="a room")


def _select(rows, count, identify=_identify):
    return select_cases(
        rows,
        count,
        selection_seed=42,
        base_noise_seed=42,
        measure=lambda row: (row.num_frames, 33),
        identify=identify,
        is_rejection=lambda fault: fault.code == "camera.guard",
    )


def test_published_seeds_are_reproduced():
    assert draw_seed("validation-noise", 20, 7, 42) == 1679897218
    assert [draw_seed("validation-noise", 0, slot, 42) for slot in range(3)] == [
        1602803860,
        531831846,
        1156771798,
    ]


def test_published_order_of_300_rows_is_reproduced():
    order = candidate_order(300, 42)
    assert order[:8] == [57, 12, 140, 125, 114, 71, 52, 279]
    assert sorted(order) == list(range(300))


def test_rows_refused_by_the_guards_give_their_slot_to_the_next_candidate():
    rows = [_Row(f"local/clip-{index}", start_frame=0) for index in range(6)]
    order = candidate_order(6, 42)
    refused = rows[order[1]].sample_id

    def identify(row, start):
        if row.sample_id == refused:
            raise SolarError("camera.guard", "too far")
        return _identify(row, start)

    cases = _select(rows, 3, identify)
    assert [case.row_index for case in cases] == [order[0], order[2], order[3]]
    assert [case.slot for case in cases] == [0, 1, 2]
    assert [case.noise_seed for case in cases] == [1602803860, 531831846, 1156771798]
    assert cases[1].metadata["selection_candidate_ordinal"] == 2


def test_a_fault_that_is_no_guard_ends_the_selection():
    def identify(row, start):
        raise SolarError("data.shard-missing", "gone")

    with pytest.raises(SolarError) as caught:
        _select([_Row("local/a")], 1, identify)
    assert caught.value.code == "data.shard-missing"


def test_too_few_usable_rows_are_told_with_their_number():
    with pytest.raises(SolarError) as caught:
        _select([_Row("local/a"), _Row("local/b")], 3)
    assert caught.value.code == "inference.too-few-cases"
    assert caught.value.exit_code == 3
    assert "validation.sample_count=2" in caught.value.fixes[0]


def test_a_row_keeps_its_own_start_and_noise_seed():
    row = _Row("local/a", start_frame=12, extra={"validation_noise_seed": 7})
    assert start_frame(row, 5, num_frames=100, span_frames=33) == 12
    assert PERMUTATION.noise_seed(row, 5, 42) == 7


def test_a_drawn_start_leaves_room_for_the_clip_and_may_be_the_last_that_fits():
    starts = {
        start_frame(_Row(f"local/{index}"), 0, num_frames=35, span_frames=33) for index in range(60)
    }
    assert starts == {0, 1, 2}


@pytest.mark.parametrize("start", [-1, 68, None])
def test_a_clip_that_does_not_fit_is_refused(start):
    row = _Row("local/a", start_frame=start)
    frames = 100 if start is not None else 32
    with pytest.raises(SolarError) as caught:
        start_frame(row, 0, num_frames=frames, span_frames=33)
    assert caught.value.code == "inference.clip-too-short"


def test_ranks_own_every_slot_exactly_once():
    cases = _select([_Row(f"local/{index}", start_frame=0) for index in range(7)], 7)
    shares = [owned(cases, dp_rank, 3) for dp_rank in range(3)]
    assert [[case.slot for case in share] for share in shares] == [[0, 3, 6], [1, 4], [2, 5]]
