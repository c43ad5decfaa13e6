from __future__ import annotations

import json
from hashlib import blake2s

import pytest

from solarwm.errors.types import SolarError
from solarwm.inference.cases import Case
from solarwm.inference.transaction import GenerationStore, attempt

WEIGHTS = "manifest:abc#ema"


def _case(slot):
    return Case(
        slot=slot,
        row_index=slot,
        sample_id=f"local/clip-{slot}",
        prompt="a room",
        start_frame=0,
        noise_seed=slot + 1,
        camera_fingerprint="00",
        metadata={"key": f"clip-{slot}"},
    )


CASES = tuple(_case(slot) for slot in range(3))
PLAN = {"cases": [case.manifest() for case in CASES], "seed": 42}


@pytest.fixture
def store(tmp_path):
    store = GenerationStore(tmp_path / "generation", family="wan22_ti2v_5b")
    store.begin(PLAN, resume=False)
    return store


def _write(store, case, pass_name="right"):
    with store.slot(pass_name, case, weights_id=WEIGHTS) as draft:
        (draft.folder / "video.mp4").write_bytes(b"video %d" % case.slot)
        (draft.folder / "schedule.json").write_bytes(b"{}\n")
        draft.shape, draft.metrics = (33, 64, 96, 3), {"slot": case.slot}


def _commit(store, pass_name="right"):
    return store.commit_pass(pass_name, CASES, weights_id=WEIGHTS)


def test_a_published_slot_holds_its_artifacts_and_a_manifest_that_names_them(store):
    _write(store, CASES[1])
    folder = store.root / "right" / "slot-000001"
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "schedule.json",
        "video.mp4",
    ]
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["schema"] == "solarwm.inference-sample.v1"
    assert manifest["case"]["sample_id"] == "local/clip-1"
    assert manifest["artifacts"][1] == {
        "path": "slot-000001/video.mp4",
        "bytes": 7,
        "digest": blake2s(b"video 1").hexdigest(),
    }


def test_a_slot_that_fails_half_way_leaves_nothing(store):
    def fail_half_way():
        with store.slot("right", CASES[0], weights_id=WEIGHTS) as draft:
            (draft.folder / "video.mp4").write_bytes(b"half")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail_half_way()
    assert list((store.root / "right").iterdir()) == []
    assert store.filled("right") == frozenset()


def test_a_whole_pass_gets_its_ordered_manifest_and_markers(store):
    for case in reversed(CASES):
        _write(store, case)
    entry = _commit(store)
    body = (store.root / "right" / "ordered-manifest.jsonl").read_bytes()
    assert [json.loads(line)["case"]["slot"] for line in body.splitlines()] == [0, 1, 2]
    assert entry["ordered_manifest_digest"] == blake2s(body).hexdigest()
    marker = json.loads((store.root / "right" / "COMPLETE.json").read_bytes())
    assert marker == {
        "schema": "solarwm.inference-complete.v1",
        "family": "wan22_ti2v_5b",
        "weights_id": WEIGHTS,
        "cases": 3,
        "ordered_manifest_digest": entry["ordered_manifest_digest"],
    }
    assert not store.is_complete()
    store.commit([entry], test_index="t", selection_seed=42, noise_seed=42, cases=3)
    assert store.is_complete()
    assert json.loads((store.root / "COMPLETE.json").read_bytes())["weights_ids"] == [WEIGHTS]


def test_a_missing_slot_keeps_the_pass_open(store):
    _write(store, CASES[0])
    with pytest.raises(SolarError) as caught:
        _commit(store)
    assert caught.value.exit_code == 4
    assert not (store.root / "right" / "COMPLETE.json").exists()


def test_an_artifact_that_changed_keeps_the_pass_open(store):
    for case in CASES:
        _write(store, case)
    (store.root / "right" / "slot-000002" / "video.mp4").write_bytes(b"video X")
    with pytest.raises(SolarError) as caught:
        _commit(store)
    assert "digest" in caught.value.why


def test_a_failure_record_names_the_fault_and_goes_when_the_slot_is_filled(store):
    store.fail("right", CASES[0], SolarError("inference.too-few-cases", "no"), world_rank=1)
    (record,) = store.failures("right")
    assert record["error"]["code"] == "inference.too-few-cases"
    assert record["world_rank"] == 1
    _write(store, CASES[0])
    assert store.failures("right") == ()


def test_a_second_start_without_resume_is_refused(store):
    with pytest.raises(SolarError) as caught:
        store.begin(PLAN, resume=False)
    assert caught.value.code == "inference.output-exists"
    assert caught.value.exit_code == 2


def test_a_resume_with_another_plan_is_refused_and_names_the_difference(store):
    with pytest.raises(SolarError) as caught:
        store.begin({**PLAN, "seed": 43}, resume=True)
    assert caught.value.code == "inference.plan-differs"
    assert "seed" in caught.value.why


def test_a_resume_keeps_filled_slots_and_sweeps_private_remains(store):
    _write(store, CASES[0])
    remains = store.root / "right" / (".slot-000001." + "0" * 32 + ".partial")
    remains.mkdir()
    store.begin(PLAN, resume=True)
    assert store.filled("right") == {0}
    assert not remains.exists()


def test_a_filled_slot_is_never_replaced(store):
    _write(store, CASES[0])
    with pytest.raises(FileExistsError):
        _write(store, CASES[0])


def test_a_fault_of_one_clip_is_recorded_and_a_shared_fault_is_raised():
    seen = []

    def clip_fault():
        raise SolarError("inference.clip-too-short", "short")

    def shared_fault():
        raise SolarError("inference.output-exists", "busy")

    assert attempt(lambda: None, seen.append)
    assert not attempt(clip_fault, seen.append)
    assert [fault.code for fault in seen] == ["inference.clip-too-short"]
    with pytest.raises(SolarError):
        attempt(shared_fault, seen.append)
