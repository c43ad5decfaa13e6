"""Training over data with unreadable samples: stop, or skip by the rule, counted and bounded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from solarwm.data.index import read_index
from solarwm.data.shards import ShardReader
from solarwm.runs.diagnosis import diagnose
from solarwm.runs.status import read_status
from tests.fault.data.worlds import resharded

SKIP = ("data.on_bad_sample=skip", "data.max_bad_samples=1", "train.max_steps=3")


@pytest.fixture
def torn_world(small_world: Path, tmp_path: Path) -> tuple[Path, str]:
    """A copy in which the second half of one video is zeros; the name of its sample."""
    world = tmp_path / "world"
    shutil.copytree(small_world, world)
    row = read_index(world / "train-index.jsonl.gz").rows[1]
    with ShardReader(world) as reader:
        place = reader.members(row.shard)[str(row.video_member)]
    with (world / row.shard).open("r+b") as stream:
        stream.seek(place.offset + place.size // 3)
        stream.write(bytes(place.size - place.size // 3))
    return world, row.sample_id


def _at(world: Path, cache: Path) -> tuple[str, ...]:
    return (
        f"data.index_root={world}",
        f"data.transport.root={world}",
        f"data.latent_cache_dir={cache}",
    )


def _ids(ended, world_size: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for rank in range(world_size):
        for record in ended.events(rank):
            for micro in record["microbatches"]:
                found.setdefault(record["step"], []).extend(micro["identity"]["sample_ids"])
    return {step: sorted(ids) for step, ids in found.items()}


def test_stop_names_the_sample_and_skip_takes_the_same_substitute_on_any_topology(
    warm, torn_world, tmp_path: Path
) -> None:
    world, bad = torn_world
    at = _at(world, tmp_path / "cache")
    stopped = warm.train(tmp_path / "stop", *at)
    assert stopped.codes == [3]
    verdict = diagnose(stopped.root)
    assert verdict.verdict == "data"
    assert any(bad in line for line in verdict.evidence)
    assert bad in stopped.texts[0]
    assert "video.undecodable" in stopped.texts[0]

    alone = warm.train(tmp_path / "alone", *at, *SKIP, "data.num_workers=0")
    both = warm.train(tmp_path / "both", *at, *SKIP, "data.num_workers=2", world_size=2)
    assert (alone.codes, both.codes) == ([0], [0, 0]), alone.texts[0]
    assert _ids(alone, 1) == _ids(both, 2)
    assert bad not in {name for ids in _ids(alone, 1).values() for name in ids}

    last = alone.events()[-1]
    used = last["step"] * 4
    skips = [e for e in alone.events(kind="sample_skipped") if e["occurrence"] < used]
    assert skips
    assert {event["sample_id"] for event in skips} == {bad}
    assert {event["code"] for event in skips} == {"video.undecodable"}
    for ended in (alone, both):
        totals = (ended.result["samples_skipped"], ended.result["bad_samples"])
        assert totals == (len(skips), 1)
        assert read_status(ended.root).figures["bad_samples"] == 1.0


def test_more_bad_samples_than_allowed_end_every_rank_with_code_three(
    warm, torn_world, tmp_path: Path
) -> None:
    world, bad = torn_world
    more = (*SKIP, "data.max_bad_samples=0")
    ended = warm.train(tmp_path / "run", *_at(world, tmp_path / "cache"), *more, world_size=2)
    assert 3 in ended.codes
    assert set(ended.codes) <= {3, 6}
    failing = ended.texts[ended.codes.index(3)]
    assert "data.too-many-bad-samples" in failing
    assert bad in failing


def test_a_missing_shard_and_a_cut_one_cost_their_samples_only(
    warm, small_world: Path, tmp_path: Path
) -> None:
    world = tmp_path / "world"
    shards = resharded(small_world, world, per_shard=1)
    rows = read_index(world / "train-index.jsonl.gz").rows
    os.truncate(world / shards[0], (world / shards[0]).stat().st_size - 3000)
    (world / shards[3]).unlink()
    lost = {row.sample_id for row in rows if row.shard in (shards[0], shards[3])}
    at = _at(world, tmp_path / "cache")
    settings = (*at, *SKIP, "data.max_bad_samples=2", "data.order=published")
    ended = warm.train(tmp_path / "run", *settings, "data.num_workers=1")
    assert ended.codes == [0], ended.texts[0]
    assert not lost & {name for ids in _ids(ended, 1).values() for name in ids}
    assert ended.result["bad_samples"] == 2
    codes = {event["code"] for event in ended.events(kind="sample_skipped")}
    assert codes == {"shard.truncated", "shard.missing"}
