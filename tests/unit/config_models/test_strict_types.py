"""A value is taken for what it is: no text on numbers, no numbers on switches."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from solarwm.config.runtime_section import CadenceRuntime
from solarwm.config.sections import CheckpointSection, DataSection, DistributedSection
from solarwm.config.strict import Component, PassName, RelativeKey, Section
from solarwm.config.training_sections import EmaSection, OptimizerSection


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (OptimizerSection, {"lr": "5e-5"}),
        (OptimizerSection, {"lr": True}),
        (OptimizerSection, {"lr": -1.0}),
        (OptimizerSection, {"lr": float("nan")}),
        (OptimizerSection, {"betas": [0.9]}),
        (OptimizerSection, {"betas": [0.9, "0.95"]}),
        (OptimizerSection, {"betas": [0.9, 1.5]}),
        (OptimizerSection, {"learning": 1.0}),
        (EmaSection, {"enabled": "false"}),
        (EmaSection, {"enabled": 0}),
        (EmaSection, {"start_step": True}),
        (EmaSection, {"start_step": 1.0}),
        (EmaSection, {"device": "tpu"}),
        (DistributedSection, {"world_size": 0}),
        (DistributedSection, {"world_size": "8"}),
        (CheckpointSection, {"keep_last": -1}),
        (CadenceRuntime, {"output_dir": ""}),
        (CadenceRuntime, {"output_dir": "o", "save_every": "off"}),
        (CadenceRuntime, {"output_dir": "o", "threads_per_rank": 0}),
        (DataSection, {"transport": {"root": "/w", "kind": "ftp"}}),
    ],
)
def test_a_wrong_type_or_range_is_refused(model: type[Section], values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_an_integer_is_a_number_and_a_list_a_tuple() -> None:
    optimizer = OptimizerSection.model_validate({"lr": 1, "betas": [0, 1]})
    assert (optimizer.lr, optimizer.betas) == (1.0, (0.0, 1.0))
    assert isinstance(optimizer.lr, float)


def test_an_explicit_zero_stays_zero() -> None:
    runtime = CadenceRuntime.model_validate(
        {"output_dir": "o", "save_every": 0, "validate_every": 0}
    )
    assert (runtime.save_every, runtime.validate_every) == (0, 0)
    assert OptimizerSection.model_validate({"weight_decay": 0}).weight_decay == 0.0


def test_a_section_is_frozen() -> None:
    optimizer = OptimizerSection.model_validate({})
    with pytest.raises(ValidationError):
        optimizer.lr = 1.0


class Names(Section):
    key: RelativeKey = "a"
    component: Component = "a"
    pass_name: PassName = "a"


@pytest.mark.parametrize(
    "values",
    [{"key": key} for key in ("/abs", "a//b", "a/../b", "./a", "gs://b/a", "a\\b", "")]
    + [{"component": name} for name in ("", ".hidden", "a/b", "a b", "..")]
    + [{"pass_name": name} for name in ("", " ", "a/b", "..", "a\0b")],
)
def test_a_name_that_is_no_path_component_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Names.model_validate(values)
