"""Occurrence to clip: cache, substitutes for refused samples, and what is never passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from solarwm.camera.poses import latent_rows
from solarwm.data.cameras import CameraRules
from solarwm.data.index import Index, read_index
from solarwm.data.latent_cache import LatentCache
from solarwm.data.order import IndexedOrder
from solarwm.data.plan import PlanSettings
from solarwm.data.published_walk import NEXT_PLANS, Cut, PublishedWalk
from solarwm.data.read_policy import ReadPolicy, Tally
from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError
from solarwm.training import clips as module
from solarwm.training.clips import ClipGeometry, ClipSource, Skip


class CountingCodec:
    """Mean colours as latents; counts how often it is asked."""

    digest = "c" * 64

    def __init__(self) -> None:
        self.encoded = 0

    def encode_video(self, pixels_NYX3: torch.Tensor) -> torch.Tensor:
        self.encoded += 1
        return pixels_NYX3[list(latent_rows(9))].float().mean((1, 2))[:, :, None, None] / 255

    def encode_text(self, prompts) -> torch.Tensor:
        return torch.full((len(prompts), 2, 3), float(len(prompts[0])))


def _source(world: Path, cache: Path, codec: CountingCodec, skips: list[Skip], **changes):
    index: Index = read_index(world / "train-index.jsonl.gz")
    values = {
        "index": index,
        "order": IndexedOrder.of(index, 42),
        "reader": ShardReader(world),
        "codec": codec,
        "cache": LatentCache(cache, codec.digest),
        "geometry": ClipGeometry(frames=33, height=64, width=96, fps=16.0, random_start=False),
        "rules": CameraRules(latent_rows=tuple(latent_rows(9))),
        "num_latents": 9,
        "on_skip": skips.append,
    }
    return ClipSource(**(values | changes)), index


def test_one_epoch_uses_every_row_once_and_encodes_it_once(
    small_world: Path, tmp_path: Path
) -> None:
    codec = CountingCodec()
    source, index = _source(small_world, tmp_path, codec, [])
    rows = len(index)
    first = [source.clip(k).sample_id for k in range(rows)]
    assert sorted(first) == sorted(row.sample_id for row in index.rows)
    for k in range(rows, 3 * rows):
        source.clip(k)
    assert codec.encoded == rows


def test_cached_clips_are_bit_equal_to_fresh_ones(small_world: Path, tmp_path: Path) -> None:
    codec = CountingCodec()
    fresh = _source(small_world, tmp_path, codec, [])[0].clip(1)
    cached = _source(small_world, tmp_path, codec, [])[0].clip(1)
    assert codec.encoded == 1
    for name in ("latents_FCHW", "text_TD", "viewmats_F44", "intrinsics_33"):
        assert torch.equal(getattr(fresh, name), getattr(cached, name))
    assert torch.equal(fresh.viewmats_F44[0], torch.eye(4))


def test_a_refused_sample_is_replaced_by_its_keyed_substitute_and_told(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.read_clip
    skips: list[Skip] = []
    source, index = _source(small_world, tmp_path, CountingCodec(), skips)
    bad = index.rows[source.window(0).row_ordinal].sample_id

    def guarded(reader, row, **more):
        if row.sample_id == bad:
            raise SolarError("camera.guard", "too far", where=row.sample_id)
        return real(reader, row, **more)

    monkeypatch.setattr(module, "read_clip", guarded)
    clip = source.clip(0)
    assert clip.sample_id != bad
    attempts = [source.window(0, attempt).row_ordinal for attempt in range(len(skips))]
    assert index.rows[attempts[-1]].sample_id == clip.sample_id
    assert {skip.sample_id for skip in skips} == {bad}
    assert [skip.attempt for skip in skips] == list(range(len(skips)))
    again = _source(small_world, tmp_path / "other", CountingCodec(), [])[0]
    assert again.clip(0).sample_id == clip.sample_id


def test_when_every_sample_is_refused_training_ends_with_code_three(
    small_world: Path, tmp_path: Path
) -> None:
    rules = CameraRules(latent_rows=tuple(latent_rows(9)), max_camera_abs=1e-6)
    source, _ = _source(small_world, tmp_path, CountingCodec(), [], rules=rules)
    with pytest.raises(SolarError) as caught:
        source.clip(0)
    assert (caught.value.code, caught.value.exit_code) == ("train.data-exhausted", 3)


def test_any_other_fault_of_the_data_is_not_passed_over(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args, **_more):
        raise SolarError("video.undecodable", "torn")

    monkeypatch.setattr(module, "read_clip", broken)
    skips: list[Skip] = []
    source, _ = _source(small_world, tmp_path, CountingCodec(), skips)
    with pytest.raises(SolarError, match="torn"):
        source.clip(0)
    assert skips == []


def test_with_skip_an_unreadable_sample_is_counted_up_to_the_cursor(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.read_clip
    skips: list[Skip] = []
    policy = ReadPolicy(on_bad_sample="skip", max_bad_samples=1)
    source, index = _source(small_world, tmp_path, CountingCodec(), skips, policy=policy)
    bad = index.rows[source.window(3).row_ordinal].sample_id

    def torn(reader, row, **more):
        if row.sample_id == bad:
            raise SolarError("video.undecodable", "torn", where=row.sample_id)
        return real(reader, row, **more)

    monkeypatch.setattr(module, "read_clip", torn)
    ids = [source.clip(k).sample_id for k in range(2 * len(index))]
    assert bad not in ids
    assert {(skip.sample_id, skip.code, skip.is_bad) for skip in skips} == {
        (bad, "video.undecodable", True)
    }
    assert source.tally(3) == Tally()
    before = sum(skip.occurrence < len(index) for skip in skips)
    assert source.tally(len(index)) == Tally(skipped=before, bad=frozenset({bad}))
    assert source.tally(2 * len(index)).skipped == len(skips)


def test_the_published_order_takes_the_next_plan_of_the_same_worker(small_world: Path) -> None:
    index = read_index(small_world / "train-index.jsonl.gz")
    settings = PlanSettings(seed=42, frames=17, start="random", fps=16.0, shuffle_buffer=2)
    cut = Cut(dp_world=1, num_nodes=1, micro_batch_size=1, grad_accum=2, num_workers=2)
    walk = PublishedWalk(index, settings, cut)
    for attempt in range(3):
        # Two workers take turns, so the next plan of a worker is two occurrences on.
        later = 4 + 2 * (attempt + 1)
        assert walk.substitute(4, attempt) == walk.occurrence(later)
        row = index.rows[walk.occurrence(later).row_ordinal]
        assert walk.start_frame(4, row, 17, attempt=attempt) == walk.start_frame(later, row, 17)
    keyed = IndexedOrder.of(index, 42)
    assert walk.substitute(4, NEXT_PLANS) == keyed.substitute(4, NEXT_PLANS)
