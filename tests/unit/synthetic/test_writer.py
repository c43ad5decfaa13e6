from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from solarwm.synthetic.clips import plan_clip
from solarwm.synthetic.renderer import FIXED_LENS, render
from solarwm.synthetic.writer import SynthesisReport, synthesize

SIZES: dict[str, Any] = {"clips": 6, "frames": 9, "height": 32, "width": 64, "seed": 5}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SynthesisReport:
    return synthesize(tmp_path_factory.mktemp("world") / "set", **SIZES)


def rows_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def files_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def member(report: SynthesisReport, row: dict[str, Any], field: str) -> bytes:
    with tarfile.open(report.train_index.parent / row["shard"]) as tar:
        file = tar.extractfile(row[field])
        assert file is not None
        return file.read()


def test_the_folder_holds_indexes_and_shards_and_nothing_else(report: SynthesisReport) -> None:
    files = files_of(report.train_index.parent)
    assert set(files) == {"train-index.jsonl.gz", "test-index.jsonl.gz", *report.shards}
    assert sum(map(len, files.values())) == report.num_bytes
    assert (report.num_train, report.num_test) == (5, 1)


def test_bytes_do_not_depend_on_workers(report: SynthesisReport, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    again = synthesize(
        tmp_path / "set", workers=2, progress=lambda *call: calls.append(call), **SIZES
    )
    assert files_of(again.train_index.parent) == files_of(report.train_index.parent)
    assert calls == [(done, 6) for done in range(1, 7)]


def test_another_seed_gives_other_clips(report: SynthesisReport, tmp_path: Path) -> None:
    other = synthesize(tmp_path / "set", **{**SIZES, "clips": 2, "seed": 6})
    first, second = rows_of(report.train_index)[0], rows_of(other.train_index)[0]
    assert member(report, first, "camera_member") != member(other, second, "camera_member")


def test_rows_carry_the_published_fields(report: SynthesisReport) -> None:
    root = report.train_index.parent
    for split, index in (("train", report.train_index), ("test", report.test_index)):
        for row in rows_of(index):
            shard = (root / row["shard"]).read_bytes()
            digest = hashlib.blake2s(shard).hexdigest()
            md5 = hashlib.md5(shard, usedforsecurity=False).digest()
            assert row["shard_size"] == len(shard)
            assert row["shard_digest"] == digest
            assert row["shard_generation"] == f"local-digest:{digest}"
            assert base64.b64decode(row["shard_md5_b64"]) == md5
            assert row["split"] == row["recipe_role"] == split
            assert row["key"] == row["sample_id"].replace("/", "__")
            assert row["sample_id"].startswith("local/")
            assert (row["dataset"], row["kept_tier"], row["epoch_repeats"]) == ("local", "high", 1)
            assert (row["num_frames"], row["fps"]) == (9, 16.0)
            assert (row["height"], row["width"]) == (32, 64)
            assert "camera" in row["caption"]


def test_train_and_test_share_nothing(report: SynthesisReport) -> None:
    train, test = rows_of(report.train_index), rows_of(report.test_index)
    for field in ("sample_id", "key", "shard"):
        assert not {row[field] for row in train} & {row[field] for row in test}
    tracks = [member(report, row, "camera_member") for row in (*train, *test)]
    assert len(set(tracks)) == len(tracks)


def test_shards_are_plain_ustar_without_dates(report: SynthesisReport) -> None:
    for name in report.shards:
        data = (report.train_index.parent / name).read_bytes()
        assert data[257:263] == b"ustar\0"
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for info in tar:
                assert info.isreg()
                assert (info.mtime, info.mode, info.uid, info.gid) == (0, 0o644, 0, 0)


def test_the_manifest_holds_the_camera_block(report: SynthesisReport) -> None:
    row = rows_of(report.test_index)[0]
    manifest = json.loads(member(report, row, "manifest_member"))
    assert manifest["camera"] == {
        "convention": "authoritative_source_c2w_no_axis_flip",
        "array_key": "c2w",
        "shape": [9, 4, 4],
        "dtype": "float32",
        "finite": True,
        "magnitude_audit_seconds": 10.0,
        "max_camera_abs": 20.0,
        "max_rel_translation": 20.0,
    }
    assert manifest["video"] == {"num_frames": 9, "fps": 16.0, "width": 64, "height": 32}
    assert manifest["prompt"]["text"] == row["caption"]
    assert manifest["source_sample_id"] == row["sample_id"]


def test_members_hold_the_clip_that_the_recipe_names(report: SynthesisReport) -> None:
    row = rows_of(report.test_index)[0]
    recipe = json.loads(member(report, row, "manifest_member"))["metadata"]["recipe"]
    clip = plan_clip(
        recipe["scene"],
        seed=recipe["seed"],
        split=recipe["split"],
        index=recipe["index"],
        frames=row["num_frames"],
    )
    with np.load(io.BytesIO(member(report, row, "camera_member")), allow_pickle=False) as arrays:
        assert list(arrays) == ["c2w"]
        assert np.array_equal(arrays["c2w"], clip.path.c2w)
        assert arrays["c2w"].dtype == np.float32
    k = np.load(io.BytesIO(member(report, row, "intrinsics_member")), allow_pickle=False)
    assert k.shape == (9, 4)
    assert k[0] == pytest.approx([FIXED_LENS.fx * 64, FIXED_LENS.fy * 32, 32, 16])

    with av.open(io.BytesIO(member(report, row, "video_member"))) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 16
        shown = np.stack([f.to_ndarray(format="rgb24") for f in container.decode(stream)])
    truth = render(clip.scene, clip.path.c2w, height=32, width=64)
    assert shown.shape == truth.shape
    assert np.abs(shown.astype(int) - truth).mean() < 10


def test_a_folder_with_an_index_is_left_alone(report: SynthesisReport) -> None:
    before = files_of(report.train_index.parent)
    with pytest.raises(FileExistsError, match=r"train-index\.jsonl\.gz"):
        synthesize(report.train_index.parent, **{**SIZES, "seed": 1})
    assert files_of(report.train_index.parent) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clips": 1}, "clips"),
        ({"frames": 0}, "frames"),
        ({"height": 33}, "height"),
        ({"width": 8}, "width"),
        ({"fps": 0.0}, "fps"),
        ({"workers": 0}, "workers"),
        ({"scene": "moon"}, "scene"),
    ],
)
def test_impossible_requests_write_nothing(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        synthesize(tmp_path / "set", **{**SIZES, **change})
    assert not (tmp_path / "set").exists()


def test_random_scenes_can_be_written_too(tmp_path: Path) -> None:
    made = synthesize(
        tmp_path / "set", clips=2, frames=5, height=32, width=32, seed=1, scene="random"
    )
    row = rows_of(made.train_index)[0]
    assert row["sample_id"] == "local/random-1-train-000000"
