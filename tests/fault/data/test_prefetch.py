"""Shards of a slow store are there before the step that reads them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch

from solarwm.camera.poses import latent_rows
from solarwm.data.cameras import CameraRules
from solarwm.data.index import read_index
from solarwm.data.latent_cache import LatentCache
from solarwm.data.order import IndexedOrder
from solarwm.data.shards import ShardReader
from solarwm.data.transport.shard_cache import ShardCache
from solarwm.data.transport.stores import ObjectStore
from solarwm.distributed.mesh import place_of
from solarwm.training.clips import ClipGeometry, ClipSource
from solarwm.training.feed import Feed
from tests.fault.data.stores import FlakyStore, serving
from tests.fault.data.worlds import resharded


class Averages:
    digest = "a" * 64

    def encode_video(self, pixels_NYX3: torch.Tensor) -> torch.Tensor:
        return pixels_NYX3[list(latent_rows(9))].float().mean((1, 2))[:, :, None, None]

    def encode_text(self, prompts) -> torch.Tensor:
        return torch.zeros(len(prompts), 2, 3)


def test_once_warm_no_reader_fetches_a_shard_itself(small_world: Path, tmp_path: Path) -> None:
    shards = resharded(small_world, tmp_path / "world", per_shard=1)
    index = read_index(tmp_path / "world" / "train-index.jsonl.gz")
    objects = {name: (tmp_path / "world" / name).read_bytes() for name in shards}
    fetchers: list[str] = []
    with serving(FlakyStore(objects, latency_s=0.05)) as root:
        cache = ShardCache(ObjectStore(root), tmp_path / "cache", max_bytes=1 << 30)
        real = cache._fetch

        def fetch(target, key, size, deadline) -> None:
            fetchers.append(threading.current_thread().name)
            real(target, key, size, deadline)

        cache._fetch = fetch
        clips = ClipSource(
            index=index,
            order=IndexedOrder.of(index, 42),
            reader=ShardReader(tmp_path / "cache", fetch=cache.path, prefetch=cache.prefetch),
            codec=Averages(),
            cache=LatentCache(tmp_path / "latents", Averages.digest),
            geometry=ClipGeometry(frames=33, height=64, width=96, fps=16.0, random_start=False),
            rules=CameraRules(latent_rows=tuple(latent_rows(9))),
            num_latents=9,
            on_skip=lambda skip: None,
            shards_ahead=2,
        )
        feed = Feed(
            clips,
            place=place_of(0, world_size=1, sp_size=1),
            micro_batch_size=1,
            accumulation=1,
            global_batch_size=1,
            cursor=0,
            depth=1,
            look_ahead=clips.look_ahead,
        )
        try:
            seen = []
            for _ in range(len(index)):
                deadline = time.monotonic() + 30.0
                while cache._fetchers and time.monotonic() < deadline:
                    time.sleep(0.01)
                seen += feed.step_batches()[0][0].sample_ids
        finally:
            feed.close()
    assert sorted(seen) == sorted(row.sample_id for row in index.rows)
    assert len(fetchers) == len(shards)
    assert [name for name in fetchers if name != "solarwm-prefetch"] == ["solarwm-reader-0"]


def test_shards_that_are_no_longer_wanted_are_not_fetched(tmp_path: Path) -> None:
    objects = {f"{number}.tar": bytes(1000) for number in range(12)}
    store = FlakyStore(objects, hold_for=99)
    with serving(store) as root:
        cache = ShardCache(ObjectStore(root), tmp_path, max_bytes=1 << 30)
        cache.prefetch((f"{number}.tar", 1000) for number in range(8))
        cache.prefetch([("11.tar", 1000)])
        store.enough.set()
        deadline = time.monotonic() + 30.0
        while cache._fetchers and time.monotonic() < deadline:
            time.sleep(0.01)
    kept = {path.name.partition("-")[2] for path in tmp_path.glob("*.tar")}
    assert "11.tar" in kept
    assert len(kept) <= 5
