"""The published rules of choice of every family, against their own words."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from solarwm.errors.types import SolarError
from solarwm.inference.cases import ClipIdentity, select_cases
from solarwm.inference.selection import SelectionRule, draw_seed, selection_rule


@dataclass(frozen=True)
class _Row:
    sample_id: str
    start_frame: int | None = 0
    key: str = ""
    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.sample_id)


def _select(rows, count, rule, *, refused=(), num_frames=100):
    def identify(row, start):
        if row.sample_id in refused:
            raise SolarError("camera.guard", "too far")
        return ClipIdentity(fingerprint=f"{start}", prompt="")

    return select_cases(
        rows,
        count,
        selection_seed=42,
        base_noise_seed=10,
        measure=lambda row: (num_frames, 33),
        identify=identify,
        is_rejection=lambda fault: fault.code == "camera.guard",
        rule=rule,
    )


def _route(family, stage="stage0p5", **sections):
    validation = SimpleNamespace(**sections.pop("validation", {}))
    inference = SimpleNamespace(**sections.pop("inference", {}))
    return selection_rule(
        SimpleNamespace(
            route=SimpleNamespace(family=family, stage=stage),
            config=SimpleNamespace(validation=validation, inference=inference),
        )
    )


def test_ltx_draws_as_many_rows_as_cases_and_counts_noise_seeds_up() -> None:
    rows = [_Row(f"a/{index}") for index in range(300)]
    rule = _route("ltx25")
    cases = _select(rows, 8, rule)
    assert [case.row_index for case in cases] == random.Random(42).sample(range(300), 8)
    assert [case.noise_seed for case in cases] == list(range(10, 18))
    with pytest.raises(SolarError) as caught:
        _select(rows, 8, rule, refused=(cases[2].sample_id,))
    assert caught.value.code == "inference.too-few-cases"


def test_h3_stage0p5_goes_through_the_permutation_with_counted_noise_seeds() -> None:
    rows = [_Row(f"a/{index}") for index in range(20)]
    order = random.Random(42).sample(range(20), 20)
    refused = rows[order[1]].sample_id
    cases = _select(rows, 3, _route("minimax_h3"), refused=(refused,))
    assert [case.row_index for case in cases] == [order[0], order[2], order[3]]
    assert [case.noise_seed for case in cases] == [10, 11, 12]


def test_h3_later_stages_take_data_sets_in_turn_and_one_row_a_video() -> None:
    rows = [
        _Row(f"{name}/{index}", key=f"{name}-{index // 2}") for name in "ba" for index in range(6)
    ]
    rule = _route("minimax_h3", "stage2", validation={"balance_by_dataset": True})
    cases = _select(rows, 6, rule)
    assert [case.sample_id[0] for case in cases] == list("ababab")
    assert len({rows[case.row_index].key for case in cases}) == 6
    assert [case.noise_seed for case in cases] == [10 + 1009 * slot for slot in range(6)]

    def place(row):
        return hashlib.sha256(f"42:{row.sample_id}".encode()).hexdigest()

    of_a = sorted((row for row in rows if row.sample_id[0] == "a"), key=place)
    assert cases[0].sample_id == of_a[0].sample_id
    second = _select(rows, 2, rule, refused=(cases[0].sample_id,))
    assert second[0].sample_id == cases[2].sample_id
    assert second[1].sample_id == cases[1].sample_id


def test_a_start_that_does_not_fit_is_drawn_anew_where_lengths_vary_by_source() -> None:
    rule = _route("wan22_ti2v_5b", validation={"variable_rollout_by_source": True})
    fits, not_fits = _Row("a/0", start_frame=67), _Row("a/1", start_frame=68)
    cases = {case.sample_id: case for case in _select([fits, not_fits], 2, rule)}
    assert cases["a/0"].start_frame == 67
    assert cases["a/0"].metadata["variable_rollout_start_adjusted"] is False
    slot = cases["a/1"].slot
    seed = draw_seed("variable-rollout-start:a/1", 0, 0, slot)
    assert cases["a/1"].start_frame == np.random.RandomState(seed).randint(0, 68)
    assert cases["a/1"].metadata["variable_rollout_start_adjusted"] is True
    with pytest.raises(SolarError):
        _select([not_fits], 1, SelectionRule())


def test_camera_length_clips_start_at_the_first_frame() -> None:
    rule = _route("wan22_ti2v_5b", inference={"length": "camera"})
    assert _select([_Row("a/0", start_frame=12)], 1, rule)[0].start_frame == 0
