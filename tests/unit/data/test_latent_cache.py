"""Cached latents: bit for bit, or absent."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

from solarwm.data.latent_cache import CacheKey, LatentCache


def key(**changes) -> CacheKey:
    given = {"sample_id": "a/ü", "start_frame": 3, "frames": 33, "height": 64, "width": 96}
    return CacheKey(**(given | changes))


def tensors() -> dict[str, np.ndarray]:
    odd = np.array([np.nan, -0.0, np.inf, 1e-45, 3.3], np.float32)
    return {"latents": odd.reshape(1, 5), "text": np.arange(6, dtype=np.float16).reshape(2, 3).T}


@pytest.fixture
def cache(tmp_path) -> LatentCache:
    return LatentCache(tmp_path / "cache", "e" * 64)


def test_values_come_back_bit_for_bit(cache) -> None:
    assert cache.get(key()) is None
    path = cache.put(key(), tensors())
    assert path == cache.path(key())
    found = cache.get(key())
    assert found is not None
    for name, tensor in tensors().items():
        assert found[name].dtype == tensor.dtype
        assert found[name].tobytes() == np.ascontiguousarray(tensor).tobytes()


@pytest.mark.parametrize(
    "change",
    [
        {"sample_id": "b"},
        {"start_frame": 4},
        {"frames": 37},
        {"height": 32},
        {"width": 64},
        {"fps": 8.0},
        {"source": "other"},
    ],
)
def test_every_part_of_the_key_counts(cache, change) -> None:
    cache.put(key(), tensors())
    assert cache.get(key(**change)) is None


def test_another_encoder_sees_nothing(cache) -> None:
    cache.put(key(), tensors())
    assert LatentCache(cache.root, "f" * 64).get(key()) is None
    assert LatentCache(cache.root, "e" * 63 + "f").get(key()) is None


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "text"])
def test_a_damaged_entry_counts_as_absent_and_is_replaced(cache, damage) -> None:
    path = cache.put(key(), tensors())
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    path.write_bytes(
        {"cut": whole[:-4], "empty": b"", "flip": bytes(flipped), "text": b"hello world"}[damage]
    )
    assert cache.get(key()) is None
    cache.put(key(), tensors())
    assert cache.get(key()) is not None


def test_an_entry_under_a_wrong_name_counts_as_absent(cache) -> None:
    path = cache.put(key(), tensors())
    target = cache.path(key(start_frame=9))
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    assert cache.get(key(start_frame=9)) is None


def _write_often(root, value: int) -> None:
    cache = LatentCache(root, "e" * 64)
    for _ in range(20):
        cache.put(key(), {"x": np.full(2000, value, np.float32)})


def test_two_writers_never_leave_a_mixture(tmp_path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_often, args=(tmp_path, v)) for v in (1, 2)]
    for worker in workers:
        worker.start()
    cache = LatentCache(tmp_path, "e" * 64)
    while any(worker.is_alive() for worker in workers):
        found = cache.get(key())
        assert found is None or len(set(found["x"].tolist())) == 1
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    found = cache.get(key())
    assert found is not None
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]
