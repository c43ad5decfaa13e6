"""Encoded clips kept on disk, one file each, read back bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b, blake2s
from pathlib import Path
from typing import TYPE_CHECKING

from solarwm.storage.digests import canonical_json
from solarwm.storage.durable import make_directories, write_bytes_atomic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = "solarwm.latent-cache.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """Which clip, cut how. `source` tells apart two data sets that use the same sample ids."""

    sample_id: str
    start_frame: int
    frames: int
    height: int
    width: int
    fps: float = 0.0
    source: str = ""


class LatentCache:
    """A directory of encoded clips made by one encoder; several processes may share it.

    An entry that is cut off, altered or of another key counts as absent, so that it is encoded and
    written again.
    """

    def __init__(self, root: Path, encoder_digest: str) -> None:
        self.root = Path(root)
        self.encoder_digest = encoder_digest

    def path(self, key: CacheKey) -> Path:
        """Where the entry lies, whether it exists or not."""
        name = blake2s(self._identity(key), digest_size=20).hexdigest()
        return self.root / self.encoder_digest[:16] / name[:2] / f"{name}.safetensors"

    def get(self, key: CacheKey) -> dict[str, NDArray[np.generic]] | None:
        """The tensors of an entry, equal in every bit to those put; None when there is no sound
        entry.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            data = self.path(key).read_bytes()
            tensors = load(data)
            length = int.from_bytes(data[:8], "little")
            stored = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
        except (OSError, SafetensorError, ValueError, KeyError):
            return None
        if stored.get("key") != self._identity(key).decode() or stored.get("digest") != _digest(
            tensors
        ):
            return None
        return tensors

    def put(self, key: CacheKey, tensors: Mapping[str, NDArray[np.generic]]) -> Path:
        """Write an entry, replacing one that is there. Raises SolarError `disk.*` (exit 5)."""
        import numpy as np
        from safetensors.numpy import save

        whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        metadata = {"schema": SCHEMA, "key": self._identity(key).decode(), "digest": _digest(whole)}
        path = self.path(key)
        make_directories(path.parent)
        write_bytes_atomic(path, save(whole, metadata))
        return path

    def _identity(self, key: CacheKey) -> bytes:
        return canonical_json({"schema": SCHEMA, "encoder": self.encoder_digest, **asdict(key)})


def _digest(tensors: Mapping[str, NDArray[np.generic]]) -> str:
    state = blake2b(digest_size=32)
    for name in sorted(tensors):
        tensor = tensors[name]
        state.update(f"{name}|{tensor.dtype}|{tensor.shape}\n".encode())
        state.update(tensor.tobytes())
    return state.hexdigest()
