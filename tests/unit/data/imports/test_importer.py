"""Whole imports through the command: what is kept, dropped and failed, and what a reader gets back."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solarwm.data.cameras import CameraRules
from solarwm.data.index import read_index
from solarwm.data.records import read_clip
from solarwm.data.shards import ShardReader
from solarwm.synthetic.video import encode_mp4


@pytest.fixture(scope="module")
def video() -> bytes:
    return film(17)


def film(frames: int, fps: float = 16.0, height: int = 32, width: int = 48) -> bytes:
    rows = np.linspace(0, 200, width, dtype=np.uint8)
    pixels = np.zeros((frames, height, width, 3), np.uint8)
    pixels[...] = rows[None, None, :, None]
    pixels[:, :, :, 1] += np.arange(frames, dtype=np.uint8)[:, None, None]
    return encode_mp4(pixels, fps=fps)


def forward(count: int, step: float = 0.1) -> np.ndarray:
    poses = np.tile(np.eye(4, dtype=np.float32), (count, 1, 1))
    poses[:, 2, 3] = np.arange(count) * step
    return poses


def run(*args: object, code: int = 0) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", "data", "import", *map(str, args), "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


def rows_of(out: Path, split: str = "train") -> list[dict]:
    data = gzip.decompress((out / f"{split}-index.jsonl.gz").read_bytes())
    return [json.loads(line) for line in data.splitlines()]


def verdicts(value: dict) -> dict[str, tuple[str, str]]:
    return {clip["name"]: (clip["verdict"], clip["code"]) for clip in value["clips"]}


def test_a_folder_of_clips_becomes_rows_that_the_reader_reads(tmp_path: Path, video: bytes) -> None:
    source = tmp_path / "source"
    for name in ("a", "b"):
        (source / name).mkdir(parents=True)
        (source / name / "video.mp4").write_bytes(video)
        (source / name / "prompt.txt").write_text(f"Prompt of {name}, \u96e8.")
        (source / name / "meta.json").write_text("{}")
        np.save(source / name / "poses.npy", forward(17).astype(np.float64))
        np.save(source / name / "intrinsics.npy", np.array([24.0, 29.0, 24.0, 16.0]))
    (source / "c.mp4").write_bytes(video)
    np.savez(source / "c.npz", w2c=np.linalg.inv(forward(17)).astype(np.float32))
    value = run(source, "--out", tmp_path / "out", "--test-clips", 0)
    assert verdicts(value) == {name: ("kept", "") for name in "abc"}
    assert "moves forward 1.6" in value["stderr"]
    rows = rows_of(tmp_path / "out")
    assert [row["sample_id"] for row in rows] == ["imported/a", "imported/b", "imported/c"]
    index = read_index(tmp_path / "out" / "train-index.jsonl.gz")
    with ShardReader(tmp_path / "out") as reader:
        clips = [
            read_clip(
                reader, row, start_frame=0, frames=17, height=32, width=48, fps=16.0,
                rules=CameraRules(use_source_lens=row.intrinsics_member is not None),
            )
            for row in index.rows
        ]  # fmt: skip
    assert clips[0].caption == "Prompt of a, \u96e8."
    for clip in clips:
        np.testing.assert_allclose(clip.c2w_N44, forward(17), atol=1e-6)
    np.testing.assert_allclose(np.diag(clips[0].intrinsics_33)[:2], [0.5, 29 / 32], atol=1e-6)
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", "data", "validate", index.path, "--decode"],
        capture_output=True,
    )
    assert done.returncode == 0


def test_a_table_is_imported_with_a_line_for_every_clip(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for frames in (60, 65, 122):
        (source / f"v{frames}.mp4").write_bytes(film(frames, fps=24.0))
    (source / "half.mp4").write_bytes((source / "v122.mp4").read_bytes()[:-1500])
    os.mkfifo(source / "pipe.mp4")
    lines = ["video,prompt,frame_rate", "v60.mp4,123,24", "v65.mp4,NaN,", 'v122.mp4,"a, b",24']
    lines += ["half.mp4,,", "pipe.mp4,x,", "gone.mp4,x,", "", "v122b.mp4,x,25"]
    (source / "v122b.mp4").write_bytes((source / "v122.mp4").read_bytes())
    (source / "metadata.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    rules = ("--frames", 81, "--fps", 16, "--short", "drop")
    value = run(source / "metadata.csv", "--out", tmp_path / "out", *rules, code=4)
    assert verdicts(value) == {
        "v60": ("dropped", "index.too-few-frames"),
        "v65": ("dropped", "index.too-few-frames"),
        "v122": ("kept", ""),
        "half": ("failed", "video.undecodable"),
        "pipe": ("failed", "video.undecodable"),
        "gone": ("failed", "video.undecodable"),
        "v122b": ("failed", "index.bad-field"),
    }
    after = {clip["name"]: clip["clip_frames"] for clip in value["clips"]}
    assert (after["v60"], after["v65"], after["v122"]) == (40, 44, 81)
    assert value["without_cameras"] == 1
    assert len(value["stderr"].splitlines()) == 8
    (row,) = rows_of(tmp_path / "out")
    assert (row["caption"], row["num_frames"]) == ("a, b", 122)
    kept = run(
        source / "metadata.csv", "--out", tmp_path / "all", "--short", "keep", "--test-clips", 0,
        code=4,
    )  # fmt: skip
    assert kept["kept"] == 3
    assert [row["caption"] for row in rows_of(tmp_path / "all")] == ["123", "NaN", "a, b"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("video,prompt\na.mp4,x\n".encode("utf-16"), "UTF-16"),
        ("video,prompt\na.mp4,\u96e8\n".encode("gbk"), "offset 19 (line 2)"),
        (b"path,prompt\na.mp4,x\n", "--video-column"),
        (b"video,prompt\na.mp4,x\na.mp4,y\n", "named twice"),
        (b"video,prompt\na.mp4,x,y\n", "more cells"),
        (b"video,frame_rate\na.mp4,fast\n", "frame rate"),
        (b"", "no videos"),
    ],
    ids=["utf-16", "gbk", "column", "twice", "ragged", "rate", "empty"],
)
def test_bad_tables_are_refused_with_their_place_and_nothing_is_written(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "metadata.csv").write_bytes(content)
    value = run(tmp_path / "metadata.csv", "--out", tmp_path / "out", code=3)
    assert said in value["stderr"]
    assert "metadata.csv" in value["stderr"]
    assert not (tmp_path / "out").exists()


def test_poses_are_matched_to_frames_by_time_or_refused(tmp_path: Path, video: bytes) -> None:
    source = tmp_path / "source"
    source.mkdir()

    def tum(name: str, step_s: float, count: int) -> None:
        (source / f"{name}.mp4").write_bytes(video)
        lines = [f"{100 + i * step_s} 0 0 {i * step_s} 0 0 0 1" for i in range(count)]
        (source / f"{name}.txt").write_text("\n".join(lines))

    tum("dense", 1 / 64, 80)
    tum("sparse", 0.5, 4)
    value = run(source, "--out", tmp_path / "out", "--test-clips", 0, code=4)
    assert verdicts(value) == {"dense": ("kept", ""), "sparse": ("failed", "camera.shape")}
    assert "0.500 s" not in value["clips"][1]["why"]
    assert "frame 1 at 100.062 s" in value["clips"][1]["why"]
    index = read_index(tmp_path / "out" / "train-index.jsonl.gz")
    with ShardReader(tmp_path / "out") as reader:
        clip = read_clip(
            reader, index.rows[0], start_frame=0, frames=17, height=32, width=48, fps=16.0,
            rules=CameraRules(),
        )  # fmt: skip
    np.testing.assert_allclose(clip.c2w_N44[:, 2, 3], np.arange(17) / 16, atol=1e-6)


def test_scale_brings_a_track_in_centimetres_inside_the_guards(
    tmp_path: Path, video: bytes
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.mp4").write_bytes(video)
    np.savez(source / "a.npz", c2w=forward(17, step=10.0))
    failed = run(source, "--out", tmp_path / "out", code=3)
    assert "camera" in failed["stderr"]
    value = run(source, "--out", tmp_path / "out", "--scale", 0.01)
    assert value["clips"][0]["motion"] == "moves forward 1.6"


def test_the_split_follows_the_published_rule_and_clips_not_order(
    tmp_path: Path, video: bytes
) -> None:
    import hashlib

    source = tmp_path / "source"
    source.mkdir()
    for number in range(5):
        (source / f"{number}.mp4").write_bytes(video)
    run(source, "--out", tmp_path / "out", "--test-clips", 2)
    ids = [f"imported/{number}" for number in range(5)]
    ranked = sorted(ids, key=lambda name: hashlib.sha256(name.encode()).digest())
    found = {row["sample_id"] for row in rows_of(tmp_path / "out", "test")}
    assert found == set(ranked[:2])
    assert {row["sample_id"] for row in rows_of(tmp_path / "out")} == set(ranked[2:])
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    run(source, "--out", tmp_path / "out", code=2)
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before
