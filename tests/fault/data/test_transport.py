"""Shards from stores: a real S3 server, a ranged HTTP server that fails on purpose, memory stores."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import signal
import tarfile
import threading
import time
from hashlib import blake2s

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from solarwm.data.shards import ShardReader
from solarwm.data.transport.shard_cache import ShardCache
from solarwm.data.transport.stores import ObjectStore, Patience
from solarwm.errors.types import SolarError
from tests.fault.data.stores import FlakyStore, serving

QUICK = Patience(read_s=1.0, total_s=20.0, attempts=8, first_delay_s=0.01, max_delay_s=0.05)


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def members_of(seed: int, count: int = 6) -> dict[str, bytes]:
    draw = random.Random(seed)
    return {f"{i:03}.bin": draw.randbytes(draw.randrange(1, 20_000)) for i in range(count)}


def cache_of(root: str, directory, *, max_bytes: int = 1 << 30, patience=QUICK, **options):
    options = {"part_bytes": 8_192} | options
    return ShardCache(
        ObjectStore(root, patience=patience), directory, max_bytes=max_bytes, **options
    )


def check_all(root: str, directory, shards: dict[str, dict[str, bytes]]) -> ShardCache:
    cache = cache_of(root, directory)
    with ShardReader(directory, fetch=cache.path) as reader:
        for shard, members in shards.items():
            for name, data in members.items():
                assert reader.read(shard, name) == data
    return cache


@pytest.fixture
def shards():
    return {f"a/shards/{i}.tar": members_of(i) for i in range(3)}


def test_an_s3_bucket_is_read_by_ranges_through_the_cache(tmp_path, shards, monkeypatch) -> None:
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        settings = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=address)
        client.create_bucket(Bucket="data")
        for key, members in shards.items():
            client.put_object(Bucket="data", Key=f"set/{key}", Body=tar_of(members))
        cache = check_all("s3://data/set", tmp_path, shards)
        assert cache.counts.fetched == len(shards)
        again = check_all("s3://data/set", tmp_path, shards)
        assert (again.counts.fetched, again.counts.hits) == (0, len(shards))
        with pytest.raises(SolarError) as caught:
            cache.path("nothing.tar")
        assert (caught.value.code, caught.value.exit_code) == ("shard.missing", 3)
    finally:
        server.stop()


@pytest.mark.parametrize("scheme", ["gs", "hf"])
def test_other_schemes_take_the_same_way(tmp_path, shards, monkeypatch, scheme) -> None:
    class Store(MemoryFileSystem):
        protocol = (scheme,)
        store = {}  # noqa: RUF012
        pseudo_dirs = [""]  # noqa: RUF012

        @classmethod
        def _strip_protocol(cls, path):
            return "/" + path.removeprefix(f"{scheme}://").strip("/")

    before = dict(_registry)
    fsspec.register_implementation(scheme, Store, clobber=True)
    try:
        system = fsspec.filesystem(scheme)
        for key, members in shards.items():
            system.pipe(f"{scheme}://owner/set/{key}", tar_of(members))
        assert check_all(f"{scheme}://owner/set", tmp_path, shards).counts.fetched == len(shards)
    finally:
        _registry.pop(scheme, None)
        if scheme in before:
            _registry[scheme] = before[scheme]


def test_a_flaky_store_gives_no_wrong_byte_and_bounded_retries(tmp_path) -> None:
    shards = {f"{i}.tar": members_of(i, 12) for i in range(12)}
    objects = {key: tar_of(members) for key, members in shards.items()}
    store = FlakyStore(objects, errors=0.05, truncated=0.02, slow=0.01, slow_s=0.1)
    with serving(store) as root:
        cache = check_all(root, tmp_path, shards)
    parts = sum(-(-len(data) // 8_192) for data in objects.values())
    assert cache.counts.fetched_bytes == sum(map(len, objects.values()))
    assert cache.store.num_retries > 0
    assert store.requests == parts + cache.store.num_retries
    assert cache.store.num_retries <= 0.2 * parts


def test_reads_are_ranged_and_at_least_eight_are_in_flight(tmp_path) -> None:
    data = tar_of({"a.bin": os.urandom(200_000)})
    store = FlakyStore({"a.tar": data}, hold_for=8)
    with serving(store) as root:
        assert cache_of(root, tmp_path).path("a.tar").read_bytes() == data
    assert store.most_in_flight >= 8
    assert store.sent_bytes == len(data)


def test_a_store_without_ranges_is_read_whole(tmp_path) -> None:
    data = tar_of({"a.bin": os.urandom(20_000)})
    with serving(FlakyStore({"a.tar": data}, ranged=False)) as root:
        assert cache_of(root, tmp_path).path("a.tar").read_bytes() == data


def test_a_stalled_read_is_cut_off_and_tried_again(tmp_path) -> None:
    data = tar_of({"a.bin": os.urandom(20_000)})
    store = FlakyStore({"a.tar": data}, stalls_left=2, stall_s=3.0)
    patience = Patience(read_s=0.3, total_s=20.0, attempts=5, first_delay_s=0.01)
    with serving(store) as root:
        cache = cache_of(root, tmp_path, patience=patience)
        assert cache.path("a.tar").read_bytes() == data
    assert cache.store.num_retries == 2


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "requests"),
    [(500, "store.no-answer", 5, 3), (429, "store.no-answer", 5, 3), (403, "store.denied", 5, 1)],
)
def test_a_store_that_never_answers_is_told_with_its_address(
    tmp_path, status, code, exit_code, requests
) -> None:
    store = FlakyStore({"a.tar": tar_of({"a.bin": b"x"})}, errors=1.0, status=status)
    patience = Patience(attempts=3, first_delay_s=0.01)
    with serving(store) as root:
        with pytest.raises(SolarError) as caught:
            cache_of(root, tmp_path, patience=patience, part_bytes=1 << 20).path("a.tar")
        assert caught.value.where == f"{root}/a.tar"
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert store.requests == requests
    assert not list(tmp_path.glob("*.tar"))
    assert not list(tmp_path.glob(".*.part"))


def test_sizes_and_digests_of_the_index_are_held(tmp_path) -> None:
    data = tar_of({"a.bin": b"12345"})
    with serving(FlakyStore({"a.tar": data})) as root:
        with pytest.raises(SolarError, match="another size") as caught:
            cache_of(root, tmp_path).path("a.tar", len(data) + 1)
        assert caught.value.code == "shard.wrong-size"
        with pytest.raises(SolarError) as caught:
            cache_of(root, tmp_path, digests={"a.tar": "0" * 64}).path("a.tar", len(data))
        assert caught.value.code == "shard.wrong-digest"
        right = {"a.tar": blake2s(data).hexdigest()}
        path = cache_of(root, tmp_path, digests=right).path("a.tar", len(data))
        assert path.read_bytes() == data


def test_the_cache_stays_within_its_size_and_drops_the_longest_unused(tmp_path) -> None:
    objects = {f"{i}.tar": tar_of({"a.bin": bytes([i]) * 9_000}) for i in range(4)}
    size = len(objects["0.tar"])
    with serving(FlakyStore(objects)) as root:
        cache = cache_of(root, tmp_path, max_bytes=2 * size)
        cache.path("0.tar")
        cache.path("1.tar")
        time.sleep(0.02)
        cache.path("0.tar")
        cache.path("2.tar")
        kept = {path.name[25:] for path in tmp_path.glob("*.tar")}
        assert kept == {"0.tar", "2.tar"}
        with pytest.raises(SolarError) as caught:
            cache_of(root, tmp_path, max_bytes=size - 1).path("3.tar")
        assert (caught.value.code, caught.value.exit_code) == ("store.cache-too-small", 2)


@pytest.mark.parametrize("harm", ["cut", "other", "receipt", "gone"])
def test_a_damaged_cache_entry_is_fetched_again(tmp_path, harm) -> None:
    data = tar_of({"a.bin": b"12345"})
    with serving(FlakyStore({"a.tar": data})) as root:
        path = cache_of(root, tmp_path).path("a.tar")
        receipt = path.with_name(path.name + ".receipt.json")
        if harm == "cut":
            path.write_bytes(data[:100])
        elif harm == "other":
            path.write_bytes(bytes(len(data)))
        elif harm == "receipt":
            receipt.write_bytes(b"{")
        else:
            path.unlink()
        assert cache_of(root, tmp_path).path("a.tar").read_bytes() == data


def _fetch_in_child(root: str, directory: str) -> None:
    from pathlib import Path

    cache_of(root, Path(directory)).path("a.tar")


def test_processes_share_one_fetch(tmp_path) -> None:
    data = tar_of({"a.bin": os.urandom(60_000)})
    store = FlakyStore({"a.tar": data}, latency_s=0.02)
    context = multiprocessing.get_context("spawn")
    with serving(store) as root:
        children = [
            context.Process(target=_fetch_in_child, args=(root, str(tmp_path))) for _ in range(3)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
    assert store.sent_bytes == len(data)


def test_a_killed_fetch_leaves_nothing_that_is_used(tmp_path) -> None:
    data = tar_of({"a.bin": os.urandom(200_000)})
    store = FlakyStore({"a.tar": data}, latency_s=0.3)
    with serving(store) as root:
        child = multiprocessing.get_context("spawn").Process(
            target=_fetch_in_child, args=(root, str(tmp_path))
        )
        child.start()
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob(".*.part")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert list(tmp_path.glob(".*.part"))
        assert not list(tmp_path.glob("*.tar"))
        store.latency_s = 0.0
        assert cache_of(root, tmp_path).path("a.tar").read_bytes() == data
    assert not list(tmp_path.glob(".*.part"))


def test_threads_share_one_cache_and_prefetch_goes_before_them(tmp_path) -> None:
    shards = {f"{i}.tar": members_of(i) for i in range(6)}
    store = FlakyStore({key: tar_of(members) for key, members in shards.items()})
    with serving(store) as root:
        cache = cache_of(root, tmp_path)
        cache.prefetch((key, None) for key in shards)
        wrong: list[str] = []

        def work() -> None:
            with ShardReader(tmp_path, fetch=cache.path, max_open=2) as reader:
                for shard, members in shards.items():
                    for name, data in members.items():
                        if reader.read(shard, name) != data:
                            wrong.append(shard)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert cache.counts.fetched == len(shards)


def test_a_receipt_says_what_was_fetched(tmp_path) -> None:
    data = tar_of({"a.bin": b"12345"})
    with serving(FlakyStore({"x/a.tar": data})) as root:
        path = cache_of(root, tmp_path).path("x/a.tar")
        body = json.loads(path.with_name(path.name + ".receipt.json").read_text())
        assert body["uri"] == f"{root}/x/a.tar"
        assert body["size"] == len(data)


def test_a_scheme_without_its_package_names_the_extra(tmp_path) -> None:
    with pytest.raises(SolarError) as caught:
        cache_of("gs://bucket/x", tmp_path).path("a.tar")
    assert caught.value.code == "data.extra-missing"
    assert "solarwm[gcs]" in caught.value.fixes[0]
