"""State of the random generators of libraries."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from solarwm.checkpoints import rng
from solarwm.errors.types import SolarError


def draw() -> tuple[object, ...]:
    """A few draws from each generator."""
    return random.random(), random.gauss(0, 1), float(np.random.randn()), float(torch.randn(()))


def test_a_restored_state_gives_the_same_draws() -> None:
    random.gauss(0, 1)
    np.random.randn()
    record = json.loads(json.dumps(rng.capture()))
    expected = [draw() for _ in range(3)]
    rng.restore(record, place="x")
    assert [draw() for _ in range(3)] == expected


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("python", "words"), [1] * 623),
        (("python", "words"), [1 << 32] * 624),
        (("python", "version"), 2),
        (("numpy", "position"), 625),
        (("numpy", "bit_generator"), "PCG64"),
        (("torch", "cpu"), "AAAA"),
        (("torch", "cpu"), "?"),
        (("torch", "more"), 1),
    ],
)
def test_a_malformed_state_is_refused_and_changes_nothing(
    where: tuple[str, str], value: object
) -> None:
    record = rng.capture()
    record[where[0]][where[1]] = value
    before = rng.capture()
    with pytest.raises(SolarError) as told:
        rng.restore(record, place="x")
    assert (told.value.code, told.value.exit_code) == ("checkpoint.damaged", 3)
    assert rng.capture() == before
