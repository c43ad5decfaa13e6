"""Errors as text and as JSON."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

from solarwm.errors.catalog import CATALOG
from solarwm.errors.render import render_json, render_text
from solarwm.errors.types import FaultList, SolarError


def fault(number: int = 1) -> SolarError:
    return SolarError(
        "config.batch",
        f"headline {number}",
        where=f"run.yaml:{number}:3",
        why="8 x 1 = 8, not 16",
        fixes=["--set train.global_batch_size=8", "--set train.grad_accum=2"],
        context={"path": "train.global_batch_size", "legal": (8, 16)},
    )


def test_one_fault_shows_headline_code_place_reason_and_fixes() -> None:
    assert render_text(fault()).splitlines() == [
        "error: headline 1  [config.batch]",
        "  at   run.yaml:1:3",
        "  why  8 x 1 = 8, not 16",
        "  fix  --set train.global_batch_size=8",
        "  fix  --set train.grad_accum=2",
        "more: solarwm explain config.batch",
    ]


def test_every_fault_of_a_list_is_shown_with_its_number() -> None:
    text = render_text(FaultList([fault(1), FaultList([fault(2), fault(3)])]))
    assert re.findall(r"^(\d)\. headline (\d)", text, re.M) == [("1", "1"), ("2", "2"), ("3", "3")]


def test_json_carries_every_fault_and_stays_json_with_odd_context() -> None:
    odd = SolarError("config.file", "x", context={"path": Path("/a"), "set": {1}})
    value = json.loads(json.dumps(render_json(FaultList([fault(), odd]))))
    assert value["schema"] == "solarwm.error.v1"
    assert value["exit_code"] == 2
    assert [item["code"] for item in value["faults"]] == ["config.batch", "config.file"]
    assert value["faults"][0]["context"]["legal"] == [8, 16]


def test_causes_are_shown_only_when_asked_for() -> None:
    error = fault()
    error.__cause__ = OSError("disk gone")
    assert "disk gone" not in render_text(error)
    assert "OSError: disk gone" in render_text(error, verbose=True)
    assert render_json(error)["caused_by"] == ["OSError: disk gone"]


def test_colour_only_adds_escape_codes() -> None:
    plain = re.sub(r"\x1b\[\d+m", "", render_text(fault(), color=True))
    assert plain == render_text(fault())


def test_an_unforeseen_error_is_reported_as_a_bug() -> None:
    assert render_json(KeyError("x"))["exit_code"] == 70


def test_faults_survive_a_process_boundary() -> None:
    copy = pickle.loads(pickle.dumps(FaultList([fault(1), fault(2)])))
    assert render_text(copy) == render_text(FaultList([fault(1), fault(2)]))


def test_every_code_named_in_the_package_is_in_the_catalogue() -> None:
    package = Path(__file__).parents[3] / "solarwm"
    named = {
        code
        for path in package.rglob("*.py")
        for code in re.findall(r'SolarError\(\s*"([a-z0-9]+\.[a-z0-9-]+)"', path.read_text())
    }
    assert len(named) > 20
    assert named <= set(CATALOG), sorted(named - set(CATALOG))


def test_the_catalogue_is_sorted_and_uses_only_the_agreed_exit_codes() -> None:
    assert list(CATALOG) == sorted(CATALOG)
    assert {entry.exit_code for entry in CATALOG.values()} <= {2, 3, 4, 5, 6, 7, 70, 130, 143}
    assert all(entry.title and entry.explanation for entry in CATALOG.values())
