"""One bad sample of every kind, through `data validate` and through `train`: code and name told."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fault.data.worlds import resharded


@dataclass
class Sample:
    """The sample that is spoilt: its row, its members and its shard."""

    world: Path
    row: dict[str, Any]
    members: dict[str, bytes] = field(default_factory=dict)

    @property
    def shard(self) -> Path:
        return self.world / self.row["shard"]

    def member(self, kind: str) -> str:
        return self.row[f"{kind}_member"]

    def pack(self, pairs: list[tuple[str, bytes]] | None = None) -> None:
        with tarfile.open(self.shard, "w") as archive:
            for name, data in pairs or self.members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        self.row["shard_size"] = self.shard.stat().st_size

    def pose(self, change: Callable[[np.ndarray], np.ndarray], name: str = "c2w") -> None:
        poses = np.load(io.BytesIO(self.members[self.member("camera")]))["c2w"]
        buffer = io.BytesIO()
        np.savez(buffer, **{name: change(poses).astype(np.float32)})
        self.members[self.member("camera")] = buffer.getvalue()
        self.pack()


def cut(sample: Sample) -> None:
    os.truncate(sample.shard, sample.shard.stat().st_size - 12_000)
    sample.row["shard_size"] = sample.shard.stat().st_size


def empty(sample: Sample) -> None:
    sample.shard.write_bytes(b"")
    del sample.row["shard_size"]


def html(sample: Sample) -> None:
    sample.shard.write_bytes(b"<!DOCTYPE html><html>403 Forbidden</html>".ljust(2048))
    sample.row["shard_size"] = 2048


def interleaved(sample: Sample) -> None:
    first, *rest = sample.members.items()
    sample.pack([first, ("other.camera.npz", b"x"), *rest])


def pipe(sample: Sample) -> None:
    sample.shard.unlink()
    os.mkfifo(sample.shard)
    del sample.row["shard_size"]


def half_a_video(sample: Sample) -> None:
    name = sample.member("video")
    sample.members[name] = sample.members[name][: len(sample.members[name]) // 2]
    sample.pack()


def too_many_frames_declared(sample: Sample) -> None:
    sample.row["num_frames"] = 60


def one_frame_short(sample: Sample) -> None:
    manifest = json.loads(sample.members[sample.member("manifest")])
    manifest["video"]["num_frames"] = 32
    manifest["camera"]["shape"] = [32, 4, 4]
    sample.members[sample.member("manifest")] = json.dumps(manifest).encode()
    sample.row["num_frames"] = 32
    sample.pose(lambda poses: poses[:32])


def one_frame_long(sample: Sample) -> None:
    sample.row["num_frames"] = 34


def transposed(sample: Sample) -> None:
    sample.pose(lambda poses: poses.transpose(0, 2, 1))


def stretched(sample: Sample) -> None:
    scale = np.diag([1.1, 1.0, 1.0, 1.0])
    sample.pose(lambda poses: poses @ scale)


def other_convention(sample: Sample) -> None:
    sample.pose(np.linalg.inv, name="w2c")


def centimetres(sample: Sample) -> None:
    sample.pose(lambda poses: poses * np.array([[1, 1, 1, 100]] * 3 + [[1, 1, 1, 1]]))


KINDS = [
    (cut, "shard.truncated"),
    (empty, "shard.empty"),
    (html, "shard.not-a-tar"),
    (interleaved, "shard.interleaved"),
    (pipe, "shard.not-a-tar"),
    (half_a_video, "video.undecodable"),
    (too_many_frames_declared, "camera.shape"),
    (one_frame_short, "index.too-few-frames"),
    (one_frame_long, "camera.shape"),
    (transposed, "camera.not-rigid"),
    (stretched, "camera.not-rigid"),
    (other_convention, "camera.missing-array"),
    (centimetres, "camera.guard"),
]


@pytest.mark.parametrize(("spoil", "code"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_a_bad_sample_is_named_with_code_three_by_validate_and_by_train(
    warm, small_world: Path, tmp_path: Path, spoil: Callable[[Sample], None], code: str
) -> None:
    sample, index = _spoilt(small_world, tmp_path / "world", spoil)
    arguments = ["data", "validate", str(index), "--pixel-frames", "33", "--json"]
    if code.startswith("video."):
        arguments.append("--decode")
    looked = warm.launch(tmp_path / "look", arguments)
    assert looked.codes == [3], looked.texts[0]
    assert code in looked.texts[0]
    assert _names(looked.texts[0], sample)
    ended = warm.train(
        tmp_path / "run",
        f"data.index_root={sample.world}",
        f"data.transport.root={sample.world}",
        "train.max_steps=2",
    )
    assert "Traceback" not in ended.texts[0]
    if code == "camera.guard":
        # A well-formed track outside the limits is passed over, and said so.
        assert ended.codes == [0], ended.texts[0]
        skips = ended.events(kind="sample_skipped")
        assert {(skip["sample_id"], skip["code"]) for skip in skips} == {
            (sample.row["sample_id"], code)
        }
        return
    assert ended.codes == [3], ended.texts[0]
    assert code in ended.texts[0]
    assert _names(ended.texts[0], sample)


def test_a_camera_the_wrong_way_round_shows_in_words(
    warm, small_world: Path, tmp_path: Path
) -> None:
    def inverted(sample: Sample) -> None:
        sample.pose(np.linalg.inv)

    for name, spoil in (("right", lambda sample: None), ("wrong", inverted)):
        sample, index = _spoilt(small_world, tmp_path / name, spoil)
        arguments = ["data", "validate", str(index), "--list", "--json"]
        looked = warm.launch(tmp_path / f"look-{name}", arguments)
        assert looked.codes == [0], looked.texts[0]
        (clip,) = (
            clip
            for clip in json.loads(looked.texts[0])["clips"]
            if clip["sample_id"] == sample.row["sample_id"]
        )
        assert f"moves {'forward' if name == 'right' else 'back'} 1." in clip["motion"]


def _names(text: str, sample: Sample) -> bool:
    return sample.row["sample_id"] in text or sample.row["shard"] in text


def _spoilt(small_world: Path, world: Path, spoil: Callable[[Sample], None]) -> tuple[Sample, Path]:
    resharded(small_world, world, per_shard=1)
    index = world / "train-index.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(index.read_bytes()).splitlines()]
    sample = Sample(world, rows[0])
    with tarfile.open(sample.shard) as archive:
        for info in archive:
            stream = archive.extractfile(info)
            assert stream is not None
            sample.members[info.name] = stream.read()
    spoil(sample)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    index.write_bytes(gzip.compress(text.encode(), mtime=0))
    return sample, index
