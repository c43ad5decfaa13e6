"""One clip of eight cannot be written: seven are there, nothing is marked whole, a second try makes
only the missing one."""

from __future__ import annotations

import json

import pytest

from solarwm.errors.types import SolarError
from solarwm.inference.cases import Case
from solarwm.inference.passes import missing_slots
from solarwm.inference.plan import PassPlan
from solarwm.inference.transaction import GenerationStore, attempt

FAILING = 3
PLAN = PassPlan(
    name="right",
    weights="live",
    solver="euler",
    num_inference_steps=1,
    camera="source",
    latents=9,
    shift=4.0,
)


def _case(slot: int) -> Case:
    return Case(
        slot=slot,
        row_index=slot,
        sample_id=f"clip-{slot}",
        prompt="",
        start_frame=0,
        noise_seed=slot,
        camera_fingerprint="0" * 64,
        metadata={},
    )


CASES = tuple(map(_case, range(8)))


def _run(store: GenerationStore, *, broken: bool) -> list[int]:
    made = []
    for case in CASES:
        if case.slot not in missing_slots(store, (PLAN,), CASES):
            continue

        def make(case: Case = case) -> None:
            with store.slot(PLAN.name, case, weights_id="w") as draft:
                (draft.folder / "camera.npy").write_bytes(bytes(8))
                if broken and case.slot == FAILING:
                    raise SolarError(
                        "video.undecodable", "the decoder gave up", where=case.sample_id
                    )
                (draft.folder / "video.mp4").write_bytes(b"%d" % case.slot)

        def told(fault: BaseException, case: Case = case) -> None:
            store.fail(PLAN.name, case, fault, world_rank=0)

        if attempt(make, told):
            made.append(case.slot)
    return made


def test_a_failing_slot_costs_itself_only_and_a_rerun_makes_it_alone(tmp_path) -> None:
    store = GenerationStore(tmp_path / "generation", family="wan22_ti2v_5b")
    store.begin({"cases": 8}, resume=False)
    assert _run(store, broken=True) == [0, 1, 2, 4, 5, 6, 7]
    root = store.pass_root("right")
    assert len(list(root.glob("slot-*/video.mp4"))) == 7
    assert [p.name for p in (root / "errors").iterdir()] == ["slot-000003.json"]
    record = json.loads((root / "errors" / "slot-000003.json").read_bytes())
    assert record["error"]["code"] == "video.undecodable"
    assert not list(root.glob(".slot-*"))
    with pytest.raises(SolarError) as caught:
        store.commit_pass("right", CASES, weights_id="w")
    assert (caught.value.code, caught.value.exit_code) == ("inference.incomplete", 4)
    assert not list(store.root.rglob("COMPLETE.json"))
    kept = {p: p.stat().st_mtime_ns for p in root.glob("slot-*/*")}
    store.begin({"cases": 8}, resume=True)
    assert _run(store, broken=False) == [FAILING]
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert not list((root / "errors").iterdir())
    assert store.commit_pass("right", CASES, weights_id="w")["cases"] == 8
