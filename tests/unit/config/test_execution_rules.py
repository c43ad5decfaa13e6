"""Ways of running that exclude each other are refused together, each with a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from solarwm.config.resolve import resolve
from solarwm.errors.types import FaultList, SolarError

QUICKSTART = Path(__file__).parents[3] / "configs" / "examples" / "quickstart" / "stage0p5.yaml"
CLASHES = {
    "train.fsdp.cpu_offload": ["train.fsdp.cpu_offload=true"],
    "train.fsdp.recompute_every": ["train.fsdp.recompute_every=2"],
    "runtime.compile_blocks": [
        "runtime.compile_blocks=true",
        "distributed.world_size=2",
        "distributed.sequence_parallel_size=2",
        "train.grad_accum=2",
    ],
}


def faults(sets: list[str]) -> list[SolarError]:
    with pytest.raises((SolarError, FaultList)) as told:
        resolve(QUICKSTART, sets)
    return list(getattr(told.value, "faults", [told.value]))


@pytest.mark.parametrize("key", CLASHES)
def test_a_clash_is_refused_and_its_first_fix_mends_it(key: str) -> None:
    (fault,) = faults(CLASHES[key])
    assert (fault.exit_code, fault.code) == (2, "config.conflict")
    assert key.rpartition(".")[2] in str(fault) or "blocks" in str(fault)
    mended = [*CLASHES[key], fault.fixes[0].removeprefix("--set ")]
    assert resolve(QUICKSTART, mended).config.train.max_steps > 0


def test_all_clashes_are_told_at_once() -> None:
    assert len(faults([item for sets in CLASHES.values() for item in sets])) == 3
