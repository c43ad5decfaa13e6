"""The nine published routes, and the words for what does not run."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from solarwm.errors.types import SolarError
from solarwm.routes import compatibility
from solarwm.routes.table import ALIASES, ROOMS, ROUTES, canonical_family, keys

PUBLISHED = [
    "ltx25_video:stage0p5:bidirectional:native_rectified_flow",
    "minimax_h3:stage0p5:bidirectional:flow_matching",
    "minimax_h3:stage1:teacher_forcing:anyflow_forward_map:v1_5",
    "minimax_h3:stage2:self_gradient_forcing:flow_matching",
    "wan22_i2v_a14b:stage0p5:bidirectional:flow_matching",
    "wan22_ti2v_5b:stage0p5:bidirectional:flow_matching",
    "wan22_ti2v_5b:stage1:teacher_forcing:anyflow_forward_map:v1_5",
    "wan22_ti2v_5b:stage1:teacher_forcing:flow_matching",
    "wan22_ti2v_5b:stage2:self_gradient_forcing:flow_matching",
]


def test_the_keys_are_the_published_ones_in_order() -> None:
    assert keys() == PUBLISHED


def test_importing_the_table_needs_no_pydantic_numpy_or_torch() -> None:
    code = (
        "import sys, solarwm.routes.table, solarwm.routes.compatibility\n"
        "print(sorted({'pydantic', 'numpy', 'torch', 'yaml', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row.key)
def test_every_row_names_a_config_model_and_a_spec_that_exist(row) -> None:
    for reference in (row.config_model, row.backbone_spec):
        module, _, name = reference.partition(":")
        assert hasattr(import_module(module), name)
    module, _, name = row.backbone_spec.partition(":")
    assert getattr(import_module(module), name).family == row.family


def test_families_are_found_in_every_published_spelling_without_case() -> None:
    for alias, family in ALIASES.items():
        assert canonical_family(alias.upper()) == family
        assert canonical_family(f" {family} ") == family
    assert canonical_family("wan") is None


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_key_is_found_again_after_being_taken_apart(key: str) -> None:
    row = compatibility.find(compatibility.parse_key(key))
    assert row is not None
    assert row.key == key
    assert compatibility.reasons(compatibility.parse_key(key)) == []


def test_the_variant_of_anyflow_and_the_objective_of_ltx_may_be_left_as_published() -> None:
    short = "minimax_h3:stage1:teacher_forcing:anyflow_forward_map"
    assert compatibility.require(compatibility.parse_key(short)).variant == "v1_5"
    loose = "LTX-2.5:stage0p5:bidirectional:flow_matching"
    assert (
        compatibility.require(compatibility.parse_key(loose)).objective == "native_rectified_flow"
    )


@pytest.mark.parametrize("family", ["wan22_i2v_a14b", "ltx25_video"])
@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_a14b_and_ltx_have_no_later_stages_and_the_reason_is_given(family: str, stage: str) -> None:
    with pytest.raises(SolarError) as caught:
        compatibility.require(
            compatibility.parse_key(f"{family}:{stage}:teacher_forcing:flow_matching")
        )
    assert caught.value.exit_code == 2
    assert "no Stage1 or Stage2" in caught.value.why
    assert all(key.startswith(f"{family}:stage0p5") for key in caught.value.context["legal"])


def test_every_combination_outside_the_table_has_a_reason() -> None:
    modes = ("bidirectional", "teacher_forcing", "self_gradient_forcing", "")
    objectives = ("flow_matching", "anyflow_forward_map", "native_rectified_flow", "dmd", "")
    for family in ROOMS:
        for stage in ("stage0p5", "stage1", "stage2", "stage9", ""):
            for mode in modes:
                for objective in objectives:
                    for variant in ("", "v1_5", "v2"):
                        ask = compatibility.parse_key(
                            ":".join((family, stage, mode, objective, variant))
                        )
                        assert (compatibility.find(ask) is None) == bool(compatibility.reasons(ask))
