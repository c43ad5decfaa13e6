"""Index digests and sample plans of the published sampler."""

from __future__ import annotations

import gzip
import json
from hashlib import blake2s

import pytest

from solarwm.data.digest import inspect_index
from solarwm.data.index import read_index
from solarwm.data.plan import PlanFingerprint, PlanSettings, PublishedOrder, Reader

NAMES = (
    "plan_cli_default.json",
    "plan_global_first_frame_buffer4096.json",
    "plan_global_random_81f.json",
    "plan_global_sequential_buffer1.json",
    "plan_node_shard_fixed_collection_relative.json",
    "plan_node_shard_random_153f.json",
)
PROSE = ("description", "name", "note", "python", "schema", "epochs")


def index_of(document: dict, folder, *, packed: bool):
    text = "".join(json.dumps(row) + "\n" for row in document["rows"]).encode()
    path = folder / ("index.jsonl.gz" if packed else "index.jsonl")
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", NAMES)
def test_inspect_gives_the_golden_digests(name, packed, golden, tmp_path) -> None:
    file = golden(name, prose=(*PROSE, "rows", "expected", "sampling_config"))
    report = inspect_index(index_of(file.document, tmp_path, packed=packed))
    assert file.take("index_inspect", "index_text")
    for key in (
        "rows",
        "virtual_occurrences",
        "ordered_sample_id_digest",
        "ordered_row_digest",
        "decompressed_digest",
    ):
        assert getattr(report, key) == file.take("index_inspect", key), key
        file.compared += 1


@pytest.mark.parametrize("name", NAMES)
def test_plans_equal_the_golden_ones(name, golden, tmp_path) -> None:
    file = golden(name, prose=(*PROSE, "rows", "index_inspect"))
    index = read_index(index_of(file.document, tmp_path, packed=False))
    settings = settings_of(file)
    orders: dict[str, PublishedOrder] = {}
    for number in range(len(file.document["expected"])):
        expected = file.take("expected", number)
        reader = reader_of(expected["identity"])
        order = orders.get(str(reader))
        if order is None or expected.get("fresh_sampler"):
            order = orders[str(reader)] = PublishedOrder(index, settings, reader)
        fingerprint = PlanFingerprint()
        plans = []
        for plan in order.epoch(expected["epoch"]):
            fingerprint.add(plan)
            plans.append(plan)
        assert [told(plan) for plan in plans] == expected["plans"]
        assert fingerprint.count == expected["count"]
        assert fingerprint.hexdigest() == expected["fingerprint"]
        if "rng_probe_after" in expected:
            assert order.rng.getstate()[1][-1] == expected["rng_probe_after"]
        file.compared += 1


def settings_of(file) -> PlanSettings:
    given = file.take("sampling_config")
    start = (
        "random"
        if given["random_start"]
        else "fixed"
        if given["fixed_start_from_index"]
        else "first"
    )
    return PlanSettings(
        seed=given["seed"],
        frames=given["pixel_frames"],
        start=start,
        fps=given["output_fps"] or 0.0,
        shuffle_buffer=given["shuffle_buffer"],
        partition=given["partition_mode"],
        scope=given["shard_partition_scope"],
    )


def reader_of(identity: dict) -> Reader:
    return Reader(
        dp_rank=identity["rank"],
        dp_world=identity["world_size"],
        node=identity.get("node_id", 0),
        num_nodes=identity.get("node_count", 1),
        local_dp_rank=identity.get("local_rank", identity["rank"]),
        local_dp_world=identity.get("local_world_size", identity["world_size"]),
        worker=identity.get("worker_id", 0),
        num_workers=identity.get("num_workers", 1),
    )


def told(plan) -> dict:
    indices = ",".join(map(str, plan.source_frame_indices))
    return {
        "key": plan.key,
        "reader_rank": plan.reader_rank,
        "repeat_ordinal": plan.repeat,
        "row_ordinal": plan.row_ordinal,
        "sample_id": plan.sample_id,
        "shard": plan.shard,
        "source_frame_first": plan.source_frame_indices[0],
        "source_frame_indices_blake2s": blake2s(indices.encode()).hexdigest(),
        "source_frame_last": plan.source_frame_indices[-1],
        "start_frame": plan.start_frame,
        "worker_id": plan.worker,
    }
