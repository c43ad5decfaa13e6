"""What real training consumes: the published order by its own sampler, shards of a store, resume."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from solarwm.data.index import read_index
from solarwm.data.plan import PlanSettings, PublishedOrder, Reader
from tests.fault.data.stores import FlakyStore, serving
from tests.fault.data.worlds import resharded

PUBLISHED = (
    "data.order=published",
    "data.random_start=true",
    "data.shuffle_buffer=3",
    "runtime.save_every=2",
)


def _steps(ended, world_rank: int = 0) -> dict[int, list[tuple[str, int]]]:
    return {
        record["step"]: [
            pair
            for micro in record["microbatches"]
            for pair in zip(
                micro["identity"]["sample_ids"], micro["identity"]["start_frames"], strict=True
            )
        ]
        for record in ended.events(world_rank)
    }


def _plans(world: Path, reader: Reader, partition: str, epochs: int) -> list[tuple[str, int]]:
    settings = PlanSettings(
        seed=42, frames=33, start="random", fps=16.0, shuffle_buffer=3, partition=partition
    )
    order = PublishedOrder(read_index(world / "train-index.jsonl.gz"), settings, reader)
    return [
        (plan.sample_id, plan.start_frame) for epoch in range(epochs) for plan in order.epoch(epoch)
    ]


@pytest.mark.parametrize(
    ("world_size", "workers", "partition"),
    [(1, 1, "global_occurrence"), (2, 1, "node_shard"), (1, 2, "global_occurrence")],
)
def test_training_consumes_the_published_order(
    warm, small_world: Path, tmp_path: Path, world_size, workers, partition
) -> None:
    sets = (*PUBLISHED, f"data.partition_mode={partition}", f"data.num_workers={workers}")
    ended = warm.train(tmp_path / "run", *sets, "train.max_steps=4", world_size=world_size)
    assert ended.codes == [0] * world_size, ended.texts[0]
    for rank in range(world_size):
        consumed = [pair for _, pairs in sorted(_steps(ended, rank).items()) for pair in pairs]
        streams = []
        for worker in range(workers):
            reader = Reader(
                dp_rank=rank,
                dp_world=world_size,
                local_dp_rank=rank,
                local_dp_world=world_size,
                worker=worker,
                num_workers=workers,
            )
            streams.append(iter(_plans(small_world, reader, partition, 9)))
        size = len(
            json.loads(json.dumps(ended.events(rank)[0]))["microbatches"][0]["identity"][
                "sample_ids"
            ]
        )
        expected = []
        batch = 0
        while len(expected) < len(consumed):
            expected += [next(streams[batch % workers]) for _ in range(size)]
            batch += 1
        assert consumed == expected


def test_the_published_order_resumes_exactly_and_only_on_its_topology(warm, tmp_path: Path) -> None:
    sets = (*PUBLISHED, "train.max_steps=4", "data.num_workers=2")
    straight = warm.train(tmp_path / "straight", *sets)
    first = warm.train(tmp_path / "parts", *sets, options=("--stop-after", "2"))
    moved = warm.train(
        tmp_path / "parts",
        *sets[:-1],
        "data.num_workers=1",
        options=("--resume", "latest"),
    )
    assert (straight.codes, first.codes, moved.codes) == ([0], [0], [3])
    assert "data.order" in moved.texts[0]
    assert "train.resume-mismatch" in moved.texts[0]
    second = warm.train(tmp_path / "parts", *sets, options=("--resume", "latest"))
    assert second.codes == [0]
    assert _steps(second) == _steps(straight)


def test_a_published_order_that_leaves_a_reader_empty_is_refused_before_anything_is_written(
    warm, tmp_path: Path
) -> None:
    ended = warm.train(tmp_path / "run", *PUBLISHED, "data.num_workers=64")
    assert ended.codes == [3]
    assert "data.empty-reader" in ended.texts[0]
    assert not (tmp_path / "run").exists()


def test_training_from_a_store_sees_the_samples_of_training_from_disk(
    warm, small_world: Path, tmp_path: Path
) -> None:
    world = tmp_path / "world"
    shards = resharded(small_world, world, per_shard=2)
    objects = {name: (world / name).read_bytes() for name in shards}
    local = warm.train(tmp_path / "local", "train.max_steps=3")
    with serving(FlakyStore(objects, errors=0.1, truncated=0.05)) as root:
        remote = warm.train(
            tmp_path / "remote",
            "train.max_steps=3",
            "data.transport.kind=http",
            f"data.transport.root={root}",
            f"data.transport.cache_dir={tmp_path / 'cache'}",
            "data.transport.cache_max_gib=1",
            f"data.index_root={world}",
            "data.gcs_prefetch_shards=2",
        )
    assert (local.codes, remote.codes) == ([0], [0]), remote.texts[0]
    assert _steps(remote) == _steps(local)
    assert [r["losses"] for r in remote.events()] == [r["losses"] for r in local.events()]


@pytest.mark.parametrize(("workers", "world_size"), [(0, 1), (2, 1), (2, 2)])
def test_consumed_samples_are_those_of_an_uninterrupted_run_for_any_workers_and_ranks(
    warm, tmp_path: Path, workers: int, world_size: int
) -> None:
    sets = ("train.max_steps=6", "runtime.save_every=3")
    straight = warm.train(tmp_path / "straight", *sets)
    cut = ("--stop-after", "3")
    first = warm.train(
        tmp_path / "parts",
        *sets,
        f"data.num_workers={workers}",
        world_size=world_size,
        options=cut,
    )
    second = warm.train(
        tmp_path / "parts", *sets, "data.num_workers=1", options=("--resume", "latest")
    )
    assert (first.codes, second.codes) == ([0] * world_size, [0]), second.texts[0]
    wanted = _steps(straight)
    before = [_steps(first, rank) for rank in range(world_size)]
    for step in (1, 2, 3):
        assert sorted(pair for rank in before for pair in rank[step]) == sorted(wanted[step])
    after = _steps(second)
    assert {step: after[step] for step in (4, 5, 6)} == {step: wanted[step] for step in (4, 5, 6)}


def test_a_read_that_fails_on_one_rank_ends_both_at_the_same_place(warm, tmp_path: Path) -> None:
    ended = warm.train(
        tmp_path / "run",
        world_size=2,
        patch=(
            "import os\n"
            "from solarwm.errors.types import SolarError\n"
            "from solarwm.training.clips import ClipSource\n"
            "real = ClipSource.clip\n"
            "def clip(self, occurrence):\n"
            "    if occurrence == 6: raise SolarError('shard.truncated', 'cut', where='x.tar')\n"
            "    return real(self, occurrence)\n"
            "ClipSource.clip = clip\n"
        ),
    )
    assert sorted(ended.codes) == [3, 6]
    failing = ended.codes.index(3)
    assert "shard.truncated" in ended.texts[failing]
    assert "rank" in ended.texts[1 - failing]
    assert "cut" in ended.texts[1 - failing]


def test_a_second_start_scans_no_shard(warm, tmp_path: Path) -> None:
    sets = ("train.max_steps=4", f"data.latent_cache_dir={tmp_path / 'cache'}")
    first = warm.train(tmp_path / "run", *sets, options=("--stop-after", "2"))
    second = warm.train(
        tmp_path / "run",
        *sets,
        options=("--resume", "latest"),
        patch=(
            "from solarwm.data import shards\n"
            "def refuse(*_): raise AssertionError('a shard is scanned again')\n"
            "shards.scan_tar = refuse\n"
        ),
    )
    assert (first.codes, second.codes) == ([0], [0]), second.texts[0]


@pytest.fixture(scope="module")
def forty(small_world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Settings of a run over forty samples: the clips of the small world under other names."""
    folder = tmp_path_factory.mktemp("forty")
    lines = gzip.decompress((small_world / "train-index.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    many = [{**rows[k % len(rows)], "sample_id": f"local/forty-{k:02}"} for k in range(40)]
    text = "".join(json.dumps(row) + "\n" for row in many)
    (folder / "train-index.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    test = small_world / "test-index.jsonl.gz"
    (folder / "test-index.jsonl.gz").write_bytes(test.read_bytes())
    return (f"data.index_root={folder}", "train.max_steps=10", "runtime.save_every=7")


@pytest.fixture(scope="module")
def uninterrupted(warm, forty, tmp_path_factory: pytest.TempPathFactory):
    ended = warm.train(tmp_path_factory.mktemp("straight") / "run", *forty)
    assert ended.codes == [0], ended.texts[0]
    return ended


@pytest.mark.parametrize(("workers", "world_size"), [(0, 1), (2, 1), (1, 2)])
def test_forty_samples_stopped_at_step_seven_go_on_where_they_stopped(
    warm, forty, uninterrupted, tmp_path: Path, workers: int, world_size: int
) -> None:
    sets = (*forty, f"data.num_workers={workers}")
    cut = warm.train(tmp_path / "run", *sets, world_size=world_size, options=("--stop-after", "7"))
    rest = warm.train(tmp_path / "run", *sets, options=("--resume", "latest"))
    assert (cut.codes, rest.codes) == ([0] * world_size, [0]), rest.texts[0]
    wanted, after = _steps(uninterrupted), _steps(rest)
    before: dict[int, list[tuple[str, int]]] = {}
    for rank in range(world_size):
        for step, pairs in _steps(cut, rank).items():
            before.setdefault(step, []).extend(pairs)
    consumed = {step: before.get(step) or after[step] for step in range(1, 11)}
    if world_size == 1:
        assert consumed == wanted
    assert {step: sorted(pairs) for step, pairs in consumed.items()} == {
        step: sorted(pairs) for step, pairs in wanted.items()
    }
    ids = [sample_id for pairs in consumed.values() for sample_id, _ in pairs]
    assert sorted(ids) == [f"local/forty-{k:02}" for k in range(40)]
    prints = {
        micro["identity"]["plan_fingerprint"]
        for ended in (cut, rest, uninterrupted)
        for record in ended.events()
        for micro in record["microbatches"]
    }
    assert len(prints) == 1
