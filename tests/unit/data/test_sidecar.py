"""Rows kept beside a large index: equal to those read, found again at once, never trusted when damaged."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

import pytest

from solarwm.data import index as index_module
from solarwm.data.index import ensure_disjoint, read_index
from solarwm.data.order import IndexedOrder
from solarwm.errors.types import SolarError

ROWS = 1000


def _write(path: Path, count: int = ROWS, **changes) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        for number in range(count):
            row = {
                "sample_id": f"demo/{number:05d}",
                "key": f"clip-{number:05d}",
                "shard": f"shards/{number // 64:04d}.tar",
                "epoch_repeats": 1 + number % 3,
                "num_frames": 81 + number % 7,
                "fps": 16.0,
                "caption": "Straße, 雨" if number % 5 else "rain",
                "shard_size": 10**20 + number // 64,
                "video_member": f"clip-{number:05d}.mp4",
                **changes,
            }
            stream.write(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n")
    return path


@pytest.fixture
def index_path(tmp_path):
    return _write(tmp_path / "train.jsonl.gz")


def _read(path, tmp_path):
    return read_index(path, cache=tmp_path / "cache", least_bytes=0)


def _kept(tmp_path):
    (place,) = (tmp_path / "cache").glob("*.rows")
    return place


def test_rows_out_of_the_cache_are_those_of_the_index(index_path, tmp_path):
    whole = read_index(index_path)
    assert isinstance(whole.rows, tuple)
    for found in (_read(index_path, tmp_path), _read(index_path, tmp_path)):
        assert not isinstance(found.rows, tuple)
        assert tuple(found.rows) == whole.rows
        assert [found.rows[n] for n in (0, 63, 64, ROWS - 1, -1)] == [
            whole.rows[n] for n in (0, 63, 64, ROWS - 1, -1)
        ]
        assert found.rows[60:70] == whole.rows[60:70]
        assert list(found.ends) == list(accumulate(row.epoch_repeats for row in whole.rows))
        assert found.num_occurrences == whole.num_occurrences
        assert found.occurrence(777) == whole.occurrence(777)
        orders = [IndexedOrder.of(index, 7) for index in (found, whole)]
        assert [orders[0].occurrence(k) for k in range(50)] == [
            orders[1].occurrence(k) for k in range(50)
        ]
        with pytest.raises(IndexError):
            found.rows[ROWS]


def test_the_second_reading_reads_no_line_of_the_index(index_path, tmp_path, monkeypatch):
    _read(index_path, tmp_path)

    def refused(*_, **__):
        raise AssertionError("the index is read again")

    monkeypatch.setattr(index_module, "iterate_batches", refused)
    assert len(_read(index_path, tmp_path)) == ROWS


def test_a_changed_index_is_read_anew_and_its_old_rows_are_removed(index_path, tmp_path):
    _read(index_path, tmp_path)
    before = _kept(tmp_path)
    _write(index_path, ROWS + 1)
    assert len(_read(index_path, tmp_path)) == ROWS + 1
    assert _kept(tmp_path) != before


@pytest.mark.parametrize("place", ["first", "middle", "columns", "foot", "cut", "empty"])
def test_damaged_rows_are_found_and_written_again(index_path, tmp_path, place):
    whole = read_index(index_path)
    _read(index_path, tmp_path)
    kept = _kept(tmp_path)
    data = bytearray(kept.read_bytes())
    at = {"first": 3, "middle": len(data) // 3, "columns": len(data) - 400, "foot": len(data) - 20}
    if place in at:
        data[at[place]] ^= 0x40
    kept.write_bytes({"cut": data[: len(data) // 2], "empty": b""}.get(place, data))
    assert tuple(_read(index_path, tmp_path).rows) == whole.rows
    found = _read(index_path, tmp_path)
    assert [found.rows[n] for n in range(0, ROWS, 50)] == list(whole.rows[::50])
    assert tuple(found.rows) == whole.rows


def test_a_faulty_row_is_told_with_its_place_and_leaves_nothing(index_path, tmp_path):
    with gzip.open(index_path, "at", encoding="utf-8") as stream:
        stream.write('{"sample_id": "x", "key": "k", "shard": "../s.tar"}\n')
    with pytest.raises(SolarError) as caught:
        _read(index_path, tmp_path)
    assert caught.value.code == "index.bad-path"
    assert f"row {ROWS + 1}" in caught.value.why
    assert not list((tmp_path / "cache").glob("*.rows*"))
    assert not list((tmp_path / "cache").glob(".*partial"))


def test_a_cache_that_cannot_be_written_is_done_without(index_path, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert isinstance(_read(index_path, tmp_path).rows, tuple)


def test_processes_that_come_together_write_the_rows_once(index_path, tmp_path):
    code = (
        "import sys; from pathlib import Path; from solarwm.data import index;"
        "real = index.iterate_batches; calls = [];"
        "index.iterate_batches = lambda *a, **k: (calls.append(1), real(*a, **k))[1];"
        "found = index.read_index(Path(sys.argv[1]), cache=Path(sys.argv[2]), least_bytes=0);"
        "print(len(found), len(calls))"
    )

    def run(_):
        return subprocess.run(
            [sys.executable, "-c", code, str(index_path), str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        ).stdout.split()

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(run, range(3)))
    assert [rows for rows, _ in told] == [str(ROWS)] * 3
    assert sum(int(calls) for _, calls in told) == 1


def test_memory_does_not_hold_the_rows(tmp_path):
    path = _write(tmp_path / "many.jsonl.gz", 12_000)
    _read(path, tmp_path)
    sizes = []
    for cache in (tmp_path / "cache", tmp_path / "no"):
        if cache.name == "no":
            cache.write_text("")
        tracemalloc.start()
        index = read_index(path, cache=cache, least_bytes=0)
        for ordinal in range(0, 12_000, 3):
            index.rows[ordinal]
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert sizes[0] < 0.4 * sizes[1]


def test_two_indexes_are_held_against_each_other(index_path, tmp_path):
    train = _read(index_path, tmp_path)
    test = read_index(_write(tmp_path / "test.jsonl.gz", 3))
    with pytest.raises(SolarError) as caught:
        ensure_disjoint(train, test)
    assert caught.value.code == "index.overlap"
    assert "3 sample ids" in caught.value.headline
