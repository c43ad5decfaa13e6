"""The 153-frame window index: raw rows joined with a released index, or refused by name."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
from pathlib import Path

import pytest

from solarwm.data.index import read_index
from solarwm.data.packing import index_bytes
from solarwm.data.window_index import materialize
from solarwm.data.windows import window_fault
from solarwm.errors.types import SolarError

SIX = (0, 20, 39, 59, 78, 98)
"""round-half-up of i x 98 / 5 for a source of 251 frames."""


def _raw(name: str, dataset: str, split: str, frames: int) -> dict:
    key = name.replace("/", "__")
    return {
        "sample_id": name,
        "key": key,
        "shard": "raw-wds/shards/a.tar",
        "dataset": dataset,
        "kept_tier": "high",
        "recipe_role": split,
        "num_frames": frames,
        "fps": 16.0,
        "epoch_repeats": 6,
        "video_member": f"{key}.video.mp4",
        "note": "kept",
    }


def _window(raw: dict, window: int, start: int) -> dict:
    return {
        "sample_id": f"{raw['sample_id']}/latent-153f-w{window:02d}",
        "key": f"{raw['key']}__latent153f_w{window:02d}",
        "shard": "latent/a.tar",
        "start_frame": start,
        "source_frame_indices": list(range(start, start + 153)),
    }


def _world() -> dict[str, list[dict]]:
    long = _raw("abot/clip-1", "abot", "train", 251)
    plain = _raw("demo/clip-2", "demo", "train", 200)
    held = _raw("demo/clip-3", "demo", "test", 153)
    return {
        "raw-train": [long, plain],
        "raw-test": [held],
        "win-train": [
            _window(plain, 0, 31),
            *(_window(long, index, SIX[index]) for index in (5, 4, 3, 2, 1, 0)),
        ],
        "win-test": [_window(held, 0, 0)],
    }


def _write(world: dict, folder: Path):
    for name, rows in world.items():
        (folder / f"{name}.jsonl.gz").write_bytes(index_bytes(rows))
    return materialize(
        raw={split: folder / f"raw-{split}.jsonl.gz" for split in ("train", "test")},
        windows={split: folder / f"win-{split}.jsonl.gz" for split in ("train", "test")},
        output=folder / "out.jsonl.gz",
    )


def test_windows_stand_in_released_order_train_first_with_the_facts_of_their_raw_rows(
    tmp_path: Path,
) -> None:
    world = _world()
    report = _write(world, tmp_path)
    data = (tmp_path / "out.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    wanted = [row["sample_id"] for row in (*world["win-train"], *world["win-test"])]
    assert [row["sample_id"] for row in rows] == wanted
    assert (report.train_windows, report.test_windows) == (7, 1)
    assert report.compressed_sha256 == hashlib.sha256(data).hexdigest()
    assert report.decompressed_sha256 == hashlib.sha256(gzip.decompress(data)).hexdigest()
    first, last = rows[0], rows[-1]
    assert first["shard"] == "raw-wds/shards/a.tar"
    assert (first["start_frame"], first["epoch_repeats"], first["note"]) == (31, 1, "kept")
    assert (first["source_sample_id"], first["window_count"]) == ("demo/clip-2", 1)
    assert (rows[1]["window_index"], rows[1]["window_count"]) == (5, 6)
    assert last["split"] == "test"
    assert len(read_index(tmp_path / "out.jsonl.gz").rows) == 8
    again = tmp_path / "again"
    again.mkdir()
    _write(world, again)
    assert (again / "out.jsonl.gz").read_bytes() == data
    with pytest.raises(SolarError) as raised:
        _write(world, tmp_path)
    assert raised.value.code == "cli.file-exists"


@pytest.mark.parametrize(
    ("table", "place", "changes", "words"),
    [
        ("raw-train", 1, {"recipe_role": "test"}, "one role 'train'"),
        ("raw-train", 1, {"window_index": 0}, "no window_index"),
        ("raw-train", 1, {"num_frames": 152}, "152 frames hold no window"),
        ("raw-train", 1, {"dataset": "other"}, "'other' is not in its first two parts"),
        ("win-train", 0, {"sample_id": "demo/clip-2"}, "does not end in /latent-153f-wNN"),
        ("win-train", 0, {"sample_id": "demo/x/latent-153f-w00"}, "has no 'demo/x'"),
        ("win-train", 0, {"key": "k"}, "expected key 'demo__clip-2__latent153f_w00'"),
        ("win-train", 0, {"start_frame": None, "source_frame_indices": [0, 1]}, "found 2 from 0"),
        ("win-test", 0, {"sample_id": "demo/clip-3/latent-153f-w01",
                         "key": "demo__clip-3__latent153f_w01"}, "found [1]"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_named(tmp_path, table, place, changes, words) -> None:
    world = copy.deepcopy(_world())
    world[table][place].update(changes)
    with pytest.raises(SolarError) as raised:
        _write(world, tmp_path)
    assert raised.value.exit_code == 3
    assert words in raised.value.why
    assert not (tmp_path / "out.jsonl.gz").exists()


def test_a_missing_window_and_a_moved_one_are_named(tmp_path: Path) -> None:
    world = _world()
    del world["win-train"][3]
    with pytest.raises(SolarError, match="abot/clip-1") as raised:
        _write(world, tmp_path)
    assert "found [0, 1, 2, 4, 5]" in raised.value.why
    world = _world()
    world["win-train"][3] = _window(world["raw-train"][0], 3, 60)
    with pytest.raises(SolarError, match="abot/clip-1") as raised:
        _write(world, tmp_path)
    assert "expected starts [0, 20, 39, 59, 78, 98]" in raised.value.why


def test_windows_of_records_follow_the_assignment_of_the_config() -> None:
    block = {
        "window_hash_namespace": "solarwm-latent-153f-v1",
        "source_sample_id": "demo/clip-2",
        "source_dataset": "demo",
        "window_index": 0,
        "window_count": 1,
        "start_frame": 31,
    }

    def fault(assignment: str, frames: int = 153, **changes) -> str | None:
        return window_fault(
            {**block, **changes},
            frames=frames,
            num_frames=200,
            assignment=assignment,
            sample_id=f"demo/clip-2/latent-{frames}f-w00",
        )

    assert fault("materialized_index_v1") is None
    assert "found window 0 of 1 at 31" in (fault("deterministic_hash_v1") or "")
    assert "namespace" in (fault("materialized_index_v1", window_hash_namespace="other") or "")
    assert "first two parts" in (fault("materialized_index_v1", source_dataset="x") or "")
    six = {"source_dataset": "abot", "source_sample_id": "demo/abot", "window_count": 6}
    assert "sample id" in (fault("materialized_index_v1", **six) or "")
    assert "solarwm-latent-81f-v1" in (fault("materialized_index_v1", frames=81) or "")
