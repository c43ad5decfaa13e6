"""Finished raw samples to shards and indexes in the published format; equal samples give equal bytes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solarwm.storage.digests import blake2s_hex, canonical_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

AUDIT_S = 10.0
GUARD = 20.0
"""Published limit on any camera entry and on any translation from the first frame."""
CONVENTION = "authoritative_source_c2w_no_axis_flip"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSample:
    """Member bytes by suffix (`video.mp4`), and the index row without the shard."""

    members: dict[str, bytes]
    row: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(map(len, self.members.values()))


def camera_block(frames: int) -> dict[str, Any]:
    """The manifest's word for a float32 camera-to-world track `c2w` of `frames` poses."""
    return {
        "convention": CONVENTION,
        "array_key": "c2w",
        "shape": [frames, 4, 4],
        "dtype": "float32",
        "finite": True,
        "magnitude_audit_seconds": AUDIT_S,
        "max_camera_abs": GUARD,
        "max_rel_translation": GUARD,
    }


def pack(samples: Sequence[PackedSample]) -> bytes:
    """One uncompressed tar with the members of every sample side by side, without times or owners."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            for suffix, data in sample.members.items():
                info = tarfile.TarInfo(f"{sample.row['key']}.{suffix}")
                info.size, info.mode, info.mtime = len(data), 0o644, 0
                tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


def shard_identity(name: str, shard: bytes) -> dict[str, Any]:
    """The fields that every row of a shard shares: its relative key, size and digests."""
    digest = blake2s_hex(shard)
    md5 = hashlib.md5(shard, usedforsecurity=False).digest()
    return {
        "shard": name,
        "shard_size": len(shard),
        "shard_digest": digest,
        "shard_md5_b64": base64.b64encode(md5).decode("ascii"),
        "shard_generation": f"local-digest:{digest}",
    }


def index_bytes(rows: Iterable[dict[str, Any]]) -> bytes:
    """A gzip index of canonical rows, without a time stamp."""
    return gzip.compress(b"".join(map(canonical_json, rows)), compresslevel=9, mtime=0)


def npz_bytes(**arrays: NDArray[Any]) -> bytes:
    """An NPZ of plain arrays."""
    import numpy as np

    target = io.BytesIO()
    np.savez(target, allow_pickle=False, **arrays)
    return target.getvalue()


def npy_bytes(array: NDArray[Any]) -> bytes:
    """An NPY of one plain array."""
    import numpy as np

    target = io.BytesIO()
    np.save(target, array, allow_pickle=False)
    return target.getvalue()
