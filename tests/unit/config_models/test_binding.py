"""Marks are read, filled in and compared by their kind."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.config import binding
from solarwm.config.marks import UNKNOWN, Architecture, Derived, Facts, Format, Location, Recipe
from solarwm.config.strict import Listed, Section, section


def _doubled(facts: Facts) -> Any:
    return facts.pixel_frames * 2


class Inner(Section):
    size: Annotated[int, Architecture(by=_doubled)] = 0
    choice: Annotated[float, Recipe(value=0.5)] = 0.5


class Outer(Section):
    schema_text: Annotated[str, Format(value="one.v1", reason="only version 1 exists")] = "one.v1"
    free: Annotated[int, Architecture(by=_doubled, adjustable=True)] = 0
    twice: Annotated[int, Derived(by=_doubled)] = 0
    unsettled: Annotated[int, Derived(by=lambda facts: UNKNOWN)] = 7
    place: Annotated[str, Location(absolute=True)] = "/"
    inner: Inner = section()
    optional: Inner | None = None
    items: Listed[Inner | str] = ()


def _facts(profile: str, plain: dict[str, Any]) -> Facts:
    return Facts(spec=SPEC, profile=SPEC.profiles[profile], config=plain)


def test_derived_values_are_filled_in_and_written_ones_kept() -> None:
    plain = {"twice": 3, "items": [{}, "text"], "optional": None}
    filled = binding.fill(Outer, plain, _facts("tiny", {"data": {"pixel_frames": 5}}))
    assert filled == {
        "twice": 3,
        "free": 10,
        "inner": {"size": 10},
        "items": [{"size": 10}, "text"],
        "optional": None,
    }
    assert plain == {"twice": 3, "items": [{}, "text"], "optional": None}
    assert Outer.model_validate(filled).unsettled == 7


def test_a_format_value_binds_in_every_profile() -> None:
    for profile in ("released", "tiny"):
        faults = binding.binding_faults(Outer, {"schema_text": "two"}, _facts(profile, {}))
        assert [fault.path for fault in faults] == [("schema_text",)]
        assert faults[0].code == "config.binding-value"
        assert "only version 1 exists" in faults[0].why


@pytest.mark.parametrize(("profile", "places"), [("released", 2), ("tiny", 1)])
def test_an_adjustable_value_binds_for_released_only(profile: str, places: int) -> None:
    plain = {"free": 1, "inner": {"size": 1}}
    faults = binding.binding_faults(Outer, plain, _facts(profile, plain))
    assert len(faults) == places
    assert faults[-1].dotted == "inner.size"


def test_faults_name_their_place_in_lists() -> None:
    plain = {"items": ["text", {"size": 3}]}
    (fault,) = binding.binding_faults(Outer, plain, _facts("tiny", plain))
    assert fault.dotted == "items[1].size"
    assert any("66" in fix for fix in fault.fixes)


def test_deviations_tell_written_recipe_values_only() -> None:
    facts = _facts("tiny", {})
    assert binding.deviations(Outer, {"inner": {}}, facts) == []
    assert binding.deviations(Outer, {"inner": {"choice": 0.5}}, facts) == []
    (note,) = binding.deviations(Outer, {"inner": {"choice": 1}}, facts)
    assert note.startswith("inner.choice is 1;")


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        ([1, 2], (1, 2.0), True),
        ([1], [1, 2], False),
        (True, 1, False),
        (False, 0, False),
        (None, 0, False),
        ("1", 1, False),
    ],
)
def test_config_values_compare_by_value(left: object, right: object, equal: bool) -> None:
    assert binding.same(left, right) is equal


def test_fields_and_locations_are_listed_by_dotted_key() -> None:
    keys = [key for key, _ in binding.fields(Outer)]
    assert {"inner.size", "optional.choice", "items[].size"} <= set(keys)
    assert list(binding.locations(Outer)) == ["place"]


def test_facts_forgive_values_of_a_wrong_shape() -> None:
    facts = _facts("tiny", {"data": {"pixel_frames": "many", "height": True}, "train": "none"})
    assert facts.pixel_frames == 33
    assert facts.height == 64
    assert facts.stage == ""
    assert facts.get("train.stage") is None
