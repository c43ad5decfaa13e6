"""Mutated configs: the mutator knows whether its change is legal, and expects code and key from that."""

from __future__ import annotations

import copy
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from solarwm.config.resolve import resolve
from solarwm.errors.catalog import CATALOG
from solarwm.errors.render import render_json, render_text
from solarwm.errors.types import FaultList, SolarError
from tests.property.config_mutations import MARKER, MUTATIONS, Case, dump
from tests.property.yaml_mutations import YAML_MUTATIONS

CASES = int(os.environ.get("SOLARWM_FUZZ_CASES", "1000"))
SEED = int(os.environ.get("SOLARWM_FUZZ_SEED", "20"))
EVERY = (*MUTATIONS, *YAML_MUTATIONS)
EXAMPLES = Path(__file__).parents[2] / "configs" / "examples"
SOURCES = (
    "wan22_ti2v_5b/train_stage0p5_fm_81f",
    "wan22_ti2v_5b/train_stage1_tf_anyflow_v1_5_81f",
    "wan22_ti2v_5b/train_stage2_sgf_81f",
    "wan22_ti2v_5b/infer_stage0p5_fm_81f",
    "wan22_i2v_a14b/train_stage0p5_fm_81f",
    "ltx25/stage0p5-train-153f-lora384-sp2",
    "minimax_h3/stage1-158f-lora384-w6-sp2",
    "quickstart/stage0p5",
)


@pytest.fixture(scope="module")
def sources() -> dict[str, tuple[dict[str, Any], str]]:
    found = {}
    for name in SOURCES:
        path = EXAMPLES / f"{name}.yaml"
        found[name] = (yaml.safe_load(path.read_text()), resolve(path).resolved_digest)
    return found


def build(number: int, sources: dict[str, tuple[dict[str, Any], str]]) -> Case:
    rng = random.Random(SEED * 1_000_003 + number)
    mutation = EVERY[number % len(EVERY)]
    source = rng.choice(SOURCES)
    case = Case(source=source, values=copy.deepcopy(sources[source][0]), kind=mutation.__name__)
    mutation(case, rng)
    return case


def run(case: Case, folder: Path) -> tuple[str | None, SolarError | None, float]:
    text = case.text if case.text is not None else dump(case.values, allow_unicode=True)
    path = folder / f"case{case.suffix}"
    path.write_bytes(case.data if case.data is not None else text.encode())
    started = time.monotonic()
    try:
        digest, error = resolve(path, case.sets, environ=case.environ).resolved_digest, None
    except SolarError as caught:
        digest, error = None, caught
    return digest, error, time.monotonic() - started


def complaint(case: Case, digest: str | None, error: SolarError | None, wanted: str) -> str | None:
    """What is wrong with an ending, or None."""
    if case.legal is True:
        if error is not None:
            return f"refused though legal: {render_text(error)}"
        return "digest changed" if case.same and digest != wanted else None
    if error is None:
        return "accepted though illegal" if case.legal is False else None
    faults = list(error.faults) if isinstance(error, FaultList) else [error]
    shown = render_text(error, verbose=True) + json.dumps(render_json(error))
    if MARKER in shown:
        return "a secret is repeated"
    for fault in faults:
        if fault.code not in CATALOG or not fault.where or fault.exit_code != 2:
            return f"a fault without known code, place or exit code 2: {fault.code} {fault.where}"
    if case.legal is None:
        return None
    met = [
        fault
        for fault in faults
        if fault.code in case.codes
        and (case.key is None or f"{fault.context.get('path')}.".startswith(f"{case.key}."))
    ]
    return None if met else f"expected {case.codes} at {case.key}, got {render_text(error)}"


def test_every_mutated_config_ends_as_its_mutator_expects(
    sources: dict[str, tuple[dict[str, Any], str]], tmp_path: Path
) -> None:
    complaints: list[str] = []
    for number in range(CASES):
        case = build(number, sources)
        digest, error, elapsed_s = run(case, tmp_path)
        wrong = complaint(case, digest, error, sources[case.source][1])
        if elapsed_s > 20:
            wrong = f"took {elapsed_s:.1f} s"
        if wrong:
            complaints.append(f"case {number} {case.kind} of {case.source} {case.sets}: {wrong}")
    assert not complaints, f"{len(complaints)} of {CASES}\n" + "\n".join(complaints[:8])


def test_every_mutation_is_tried_in_the_normal_suite() -> None:
    assert 4 * len(EVERY) <= CASES
