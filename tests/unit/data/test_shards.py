"""Shards by offset, with tarfile as the oracle, and every kind of damaged shard."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import resource
import tarfile
import threading
from pathlib import Path

import pytest

from solarwm.data import shards
from solarwm.data.shards import ShardReader
from solarwm.errors.types import SolarError

MEMBERS = {
    "a.video.mp4": b"v" * 1000,
    "a.camera.npz": b"",
    "b.video.mp4": bytes(range(256)) * 3,
    "b.deep": b"x" * 512,
}


@pytest.fixture
def reader(world):
    with ShardReader(world.root) as opened:
        yield opened


def refused(reader, shard: str, member: str = "a.video.mp4", **options) -> SolarError:
    with pytest.raises(SolarError) as caught:
        reader.read(shard, member, **options)
    assert caught.value.exit_code == 3
    assert shard in (caught.value.where or "")
    return caught.value


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_member_equals_what_tarfile_reads(world, reader, form) -> None:
    long_name = "d" * 60 + "/" + "n" * (30 if form == tarfile.USTAR_FORMAT else 150) + ".mp4"
    members = MEMBERS | {long_name: b"long"}
    if form != tarfile.USTAR_FORMAT:
        members["ü" * 80 + ".é"] = b"unicode"
    shard = world.shard(members, format=form)
    with tarfile.open(world.root / shard) as archive:
        names = archive.getnames()
        for info in archive.getmembers():
            expected = archive.extractfile(info).read()
            assert reader.read(shard, info.name) == expected
            assert reader.members(shard)[info.name][:2] == (info.offset_data, info.size)
    assert list(reader.members(shard)) == names == list(members)


def test_a_binary_size_field_is_understood(world, reader) -> None:
    data = bytearray(world.tar_bytes({"a.x": b"12345"}))
    data[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header = data[:148] + b" " * 8 + data[156:512]
    data[148:156] = b"%06o\0 " % sum(header)
    (world.root / "s.tar").write_bytes(data)
    assert reader.read("s.tar", "a.x") == b"12345"


def test_a_directory_entry_is_no_member_and_a_link_is_refused(world, reader) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("d")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("a.link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    (world.root / "s.tar").write_bytes(buffer.getvalue())
    assert list(reader.members("s.tar")) == ["a.link"]
    assert refused(reader, "s.tar", "a.link").code == "shard.not-a-file"


def test_a_missing_member_is_named(world, reader) -> None:
    shard = world.shard(MEMBERS)
    fault = refused(reader, shard, "a.nothing")
    assert fault.code == "shard.missing-member"
    assert fault.context == {"shard": shard, "member": "a.nothing"}


def test_the_declared_size_is_compared_first(world, reader) -> None:
    shard = world.shard(MEMBERS)
    size = (world.root / shard).stat().st_size
    assert reader.read(shard, "a.camera.npz", shard_size=size) == b""
    fault = refused(reader, shard, shard_size=size + 1)
    assert fault.code == "shard.wrong-size"
    assert str(size) in fault.why


@pytest.mark.parametrize("cut", [5000, 10240])
def test_a_cut_shard_names_member_and_offset(world, reader, cut) -> None:
    members = MEMBERS | {f"c{n}.x": b"y" * 900 for n in range(20)}
    shard = world.shard(members)
    path = world.root / shard
    path.write_bytes(path.read_bytes()[: -cut - 3000])
    fault = refused(reader, shard)
    assert fault.code == "shard.truncated"
    assert "byte_offset" in fault.context


def test_a_missing_end_mark_is_a_cut(world, reader) -> None:
    data = world.tar_bytes({"a.video.mp4": b"x"})
    (world.root / "s.tar").write_bytes(data[:1024])
    assert refused(reader, "s.tar").code == "shard.truncated"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "shard.empty"),
        (b"<!DOCTYPE html><html>404</html>", "shard.not-a-tar"),
        (b"\n<html><body>" + b"x" * 2000, "shard.not-a-tar"),
        (b"garbage" * 200, "shard.not-a-tar"),
        (b"short", "shard.truncated"),
        (gzip.compress(b"x" * 3000, mtime=0), "shard.compressed"),
        (lzma.compress(b"x" * 3000), "shard.compressed"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 600, "shard.compressed"),
    ],
)
def test_what_is_no_tar_is_named(world, reader, data, code) -> None:
    (world.root / "s.tar").write_bytes(data)
    fault = refused(reader, "s.tar")
    assert fault.code == code
    if b"html" in data:
        assert "web page" in fault.headline


def test_a_damaged_header_in_the_middle_is_not_an_early_end(world, reader) -> None:
    shard = world.shard(MEMBERS)
    path = world.root / shard
    data = bytearray(path.read_bytes())
    data[reader.members(shard)["b.video.mp4"].offset - 512] ^= 0x40
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    with ShardReader(world.root) as again:
        assert refused(again, shard).code == "shard.not-a-tar"


def test_interleaved_members_are_refused(world, reader) -> None:
    shard = world.shard([("0.a", b""), ("1.a", b""), ("0.b", b""), ("1.b", b"")])
    fault = refused(reader, shard)
    assert fault.code == "shard.interleaved"
    assert fault.context["member"] == "0.b"


def test_a_repeated_member_is_refused(world, reader) -> None:
    shard = world.shard([("0.a", b"1"), ("0.a", b"2")])
    assert refused(reader, shard).code == "shard.duplicate-member"


def test_paths_out_of_the_root_are_refused(world, tmp_path_factory, reader) -> None:
    outside = tmp_path_factory.mktemp("outside") / "s.tar"
    outside.write_bytes(world.tar_bytes(MEMBERS))
    (world.root / "link.tar").symlink_to(outside)
    for shard in ("link.tar", "../outside/s.tar", str(outside)):
        assert refused(reader, shard).code == "shard.bad-path"
    world.shard(MEMBERS, "real.tar")
    (world.root / "inner.tar").symlink_to("real.tar")
    assert reader.read("inner.tar", "b.deep") == MEMBERS["b.deep"]


def test_a_missing_shard_a_folder_and_a_pipe_are_named(world, reader) -> None:
    (world.root / "folder.tar").mkdir()
    os.mkfifo(world.root / "pipe.tar")
    assert refused(reader, "none.tar").code == "shard.missing"
    assert refused(reader, "folder.tar").code == "shard.not-a-tar"
    assert refused(reader, "pipe.tar").code == "shard.not-a-tar"


def test_open_files_stay_bounded(world) -> None:
    names = [world.shard({f"{n}.x": str(n).encode()}, f"{n}.tar") for n in range(40)]
    before = len(os.listdir("/proc/self/fd"))
    with ShardReader(world.root, max_open=3) as reader:
        for number in random.Random(0).choices(range(40), k=200):
            assert reader.read(names[number], f"{number}.x") == str(number).encode()
            assert reader.num_open <= 3
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_threads_share_a_reader(world) -> None:
    names = [world.shard({f"{n}.x": str(n).encode() * 999}, f"{n}.tar") for n in range(8)]
    wrong: list[int] = []
    with ShardReader(world.root, max_open=2) as reader:

        def work(seed: int) -> None:
            for number in random.Random(seed).choices(range(8), k=100):
                if reader.read(names[number], f"{number}.x") != str(number).encode() * 999:
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_headers_are_scanned_once_a_process_and_once_a_table_folder(world, monkeypatch) -> None:
    shard = world.shard(MEMBERS)
    tables = world.root / "tables"
    scans = []
    real = shards.scan_tar
    monkeypatch.setattr(shards, "scan_tar", lambda *a: scans.append(a[1]) or real(*a))
    for _ in range(3):
        with ShardReader(world.root, table_dir=tables) as reader:
            assert reader.read(shard, "b.deep") == MEMBERS["b.deep"]
    assert scans == [shard]
    monkeypatch.setattr(shards, "_tables", {})
    with ShardReader(world.root, table_dir=tables) as reader:
        assert reader.read(shard, "b.deep") == MEMBERS["b.deep"]
    assert scans == [shard]
    assert {path.name for path in world.root.iterdir()} == {"raw", "tables"}


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"schema":"solarwm.tar-table.v1"}'])
def test_a_damaged_table_is_built_again(world, monkeypatch, damage) -> None:
    shard = world.shard(MEMBERS)
    tables = world.root / "tables"
    with ShardReader(world.root, table_dir=tables) as reader:
        reader.read(shard, "b.deep")
    (stored,) = tables.glob("*.json")
    whole = stored.read_bytes()
    stored.write_bytes(damage)
    monkeypatch.setattr(shards, "_tables", {})
    with ShardReader(world.root, table_dir=tables) as reader:
        assert reader.read(shard, "b.deep") == MEMBERS["b.deep"]
    assert stored.read_bytes() == whole


def test_a_replaced_shard_is_scanned_again(world) -> None:
    shard = world.shard({"a.x": b"old"})
    tables = world.root / "tables"
    with ShardReader(world.root, table_dir=tables) as reader:
        before = reader.identity(shard, "a.x")
        assert reader.read(shard, "a.x") == b"old"
    world.shard({"0.pad": b"z" * 2000, "a.x": b"newer"})
    with ShardReader(world.root, table_dir=tables) as reader:
        assert reader.read(shard, "a.x") == b"newer"
        assert reader.identity(shard, "a.x") != before


def test_a_table_folder_that_cannot_be_written_does_no_harm(world) -> None:
    shard = world.shard(MEMBERS)
    (world.root / "tables").write_text("a file is in the way")
    with ShardReader(world.root, table_dir=world.root / "tables") as reader:
        assert reader.read(shard, "b.deep") == MEMBERS["b.deep"]


def test_a_second_start_reads_little_more_than_the_samples(world, monkeypatch) -> None:
    draw = random.Random(0)
    bodies = {
        f"{key:02}.{name}": draw.randbytes(size)
        for key in range(40)
        for name, size in (("latent.bin", 100_000), ("camera.npz", 4_000), ("manifest.json", 600))
    }
    shard = world.shard(bodies)
    tables = world.root / "tables"
    with ShardReader(world.root, table_dir=tables) as reader:
        reader.members(shard)
    for path in (world.root / shard, *tables.glob("*.json")):
        with path.open("rb") as stream:
            os.fdatasync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    monkeypatch.setattr(shards, "_tables", {})
    names = [
        name for key in draw.sample(range(40), 20) for name in bodies if name[:2] == f"{key:02}"
    ]
    asked, fetched = _bytes_read()
    with ShardReader(world.root, table_dir=tables) as reader:
        payload = sum(len(reader.read(shard, name)) for name in names)
    asked, fetched = (now - then for now, then in zip(_bytes_read(), (asked, fetched), strict=True))
    assert payload == 20 * 104_600
    assert payload < asked <= 1.05 * payload
    # From the device come whole pages; 0 where the file system does not count them.
    assert fetched <= 1.10 * payload


def _bytes_read() -> tuple[int, int]:
    """Bytes that this process asked for, and those that came from a device, so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return int(counts["rchar"]), int(counts["read_bytes"])


def test_sparse_members_and_negative_sizes_are_refused(world, reader) -> None:
    plain = world.tar_bytes({"a.x": b"12345"})
    negative = bytearray(plain)
    negative[124:136] = b"-0000000001\0"
    total = sum(negative[:148]) + 8 * 32 + sum(negative[156:512])
    negative[148:156] = b"%06o\0 " % total
    (world.root / "negative.tar").write_bytes(negative)
    assert refused(reader, "negative.tar", "a.x").code == "shard.not-a-tar"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.x")
        info.size = 5
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        archive.addfile(info, io.BytesIO(b"12345"))
    (world.root / "sparse.tar").write_bytes(buffer.getvalue())
    assert refused(reader, "sparse.tar", "a.x").code == "shard.not-a-file"


def test_five_thousand_shards_are_read_with_256_descriptors(tmp_path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("a.x")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"12345"))
    for number in range(5_000):
        (tmp_path / f"{number}.tar").write_bytes(buffer.getvalue())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with ShardReader(tmp_path) as opened:
            for number in range(5_000):
                assert opened.read(f"{number}.tar", "a.x") == b"12345"
            assert opened.num_open <= shards.DEFAULT_MAX_OPEN
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
