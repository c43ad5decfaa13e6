"""A tiny raw data set written by hand: PyAV for the video, tarfile for the shard."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

FRAMES, HEIGHT, WIDTH, FPS = 12, 32, 48, 16


def pictures(frames: int = FRAMES, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Flat grey frames; frame i has level 16 i + 8, so that a decoded frame tells its number."""
    levels = (np.arange(frames) * 16 + 8).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None], (frames, height, width, 3)).copy()


def encoded(frames: np.ndarray, fps: int = FPS) -> bytes:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 4_000_000
        for picture in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def track(frames: int = FRAMES) -> np.ndarray:
    poses = np.tile(np.eye(4, dtype=np.float32), (frames, 1, 1))
    poses[:, 2, 3] = np.arange(frames) * 0.25
    return poses


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def manifest(frames: int = FRAMES, **camera) -> dict:
    block = {
        "convention": "authoritative_source_c2w_no_axis_flip",
        "dtype": "float32",
        "finite": True,
        "magnitude_audit_seconds": 10.0,
        "max_camera_abs": 20.0,
        "max_rel_translation": 20.0,
        "shape": [frames, 4, 4],
        "array_key": "c2w",
    }
    video = {"num_frames": frames, "fps": float(FPS), "height": HEIGHT, "width": WIDTH}
    return {"video": video, "prompt": {"text": "from the manifest"}, "camera": block | camera}


def tar_bytes(members: dict[str, bytes] | list[tuple[str, bytes]], **options) -> bytes:
    buffer = io.BytesIO()
    pairs = members.items() if isinstance(members, dict) else members
    with tarfile.open(fileobj=buffer, mode="w", **options) as archive:
        for name, data in pairs:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class World:
    """Builders for samples, and a folder to put shards and indexes into."""

    pictures = staticmethod(pictures)
    encoded = staticmethod(encoded)
    track = staticmethod(track)
    npz = staticmethod(npz)
    npy = staticmethod(npy)
    manifest = staticmethod(manifest)
    tar_bytes = staticmethod(tar_bytes)

    def __init__(self, root: Path) -> None:
        self.root = root

    def shard(self, members, name: str = "raw/s-0.tar", **options) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tar_bytes(members, **options))
        return name

    def members(self, key: str = "a", **changes) -> dict[str, bytes]:
        whole = {
            "video.mp4": encoded(pictures()),
            "camera.npz": npz(c2w=track()),
            "intrinsics.npy": npy(np.array([40.0, 42.0, 24.0, 16.0])),
            "manifest.json": json.dumps(manifest()).encode(),
        }
        whole |= changes
        return {f"{key}.{suffix}": data for suffix, data in whole.items()}

    def row(self, key: str = "a", **changes) -> dict:
        whole = {
            "sample_id": f"demo/{key}",
            "key": key,
            "shard": "raw/s-0.tar",
            "num_frames": FRAMES,
            "fps": float(FPS),
            "caption": "from the row",
            "video_member": f"{key}.video.mp4",
            "camera_member": f"{key}.camera.npz",
            "intrinsics_member": f"{key}.intrinsics.npy",
            "manifest_member": f"{key}.manifest.json",
        }
        return {name: value for name, value in (whole | changes).items() if value is not None}

    def index(self, *rows: dict, name: str = "index.jsonl") -> Path:
        path = self.root / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)
