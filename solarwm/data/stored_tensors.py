"""Tensors of a latent record as bytes: the safetensors layout, parsed strictly and executing nothing.

bfloat16 has no numpy type, so its numbers stay raw 16-bit words; `widened` gives them as fp32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NUMPY = {
    "bfloat16": "<u2",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "int64": "<i8",
    "int32": "<i4",
    "uint8": "|u1",
    "bool": "|b1",
}
"""How each number type lies in memory, by its torch name."""
_CODES = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "I32": "int32",
    "U8": "uint8",
    "BOOL": "bool",
}
_NAMES = {name: code for code, name in _CODES.items()}
_MAX_HEADER = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor: its number type by torch name, and its words as `NUMPY` lays them out."""

    dtype: str
    array: NDArray[np.generic]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self.array.shape)

    def widened(self) -> NDArray[np.float32]:
        """Its numbers as fp32."""
        import numpy as np

        if self.dtype == "bfloat16":
            return (self.array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return self.array.astype(np.float32)

    def is_finite(self) -> bool:
        """Whether it holds neither NaN nor infinity."""
        import numpy as np

        if self.dtype == "bfloat16":
            words = self.array.astype(np.uint16)
            return bool(((words & np.uint16(0x7F80)) != np.uint16(0x7F80)).all())
        return bool(np.isfinite(self.array).all())


def stored(array: NDArray[np.generic], dtype: str) -> StoredTensor:
    """`array` as numbers of type `dtype`; to bfloat16 it is rounded to nearest, ties to even.

    Numbers must be finite where they are rounded to bfloat16.
    """
    import numpy as np

    if dtype != "bfloat16":
        return StoredTensor(dtype, np.ascontiguousarray(array.astype(NUMPY[dtype])))
    words = np.ascontiguousarray(array.astype(np.float32)).view(np.uint32)
    halves = words + np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1))
    return StoredTensor(dtype, (halves >> np.uint32(16)).astype(np.uint16))


def to_bytes(tensors: Mapping[str, StoredTensor], metadata: Mapping[str, str]) -> bytes:
    """The file of these tensors: sorted names, compact sorted header padded with spaces to 8 bytes."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts: list[bytes] = []
    offset = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        data = tensor.array.tobytes()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def from_bytes(data: bytes) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Tensors and metadata of a file; raises ValueError that says what is wrong with it.

    The tensors must fill the file behind the header without gap or overlap.
    """
    header, body = _header(data)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise ValueError("its metadata is not an object of texts")
    found: dict[str, StoredTensor] = {}
    ends: list[tuple[int, int]] = []
    for name, entry in header.items():
        tensor, place = _tensor(name, entry, body)
        found[name] = tensor
        ends.append(place)
    reached = 0
    for begin, end in sorted(ends):
        if begin != reached:
            raise ValueError(f"its tensors leave a gap or overlap at byte {reached}")
        reached = end
    if reached != len(body):
        raise ValueError(f"its tensors end at byte {reached} of {len(body)}")
    return found, metadata


def _header(data: bytes) -> tuple[dict[str, Any], memoryview]:
    if len(data) < 8:
        raise ValueError(f"it has {len(data)} bytes, less than a header length")
    length = int.from_bytes(data[:8], "little")
    if length > min(_MAX_HEADER, len(data) - 8):
        raise ValueError(f"its header claims {length} bytes of {len(data)}: no safetensors file")
    try:
        header = json.loads(bytes(data[8 : 8 + length]), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header, memoryview(data)[8 + length :]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _tensor(name: str, entry: Any, body: memoryview) -> tuple[StoredTensor, tuple[int, int]]:
    import numpy as np

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r} is not described by dtype, shape and data_offsets")
    dtype = _CODES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    shape, offsets = entry["shape"], entry["data_offsets"]
    if dtype is None:
        raise ValueError(f"{name!r} has the unknown number type {entry['dtype']!r}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{name!r} has a bad shape or bad offsets")
    begin, end = offsets
    words = np.dtype(NUMPY[dtype])
    if not begin <= end <= len(body) or end - begin != math.prod(shape) * words.itemsize:
        raise ValueError(f"{name!r} of shape {shape} does not fit bytes {begin} to {end}")
    array = np.frombuffer(body[begin:end], dtype=words).reshape(shape)
    return StoredTensor(dtype, array), (begin, end)


def _counts(values: object) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 62 for v in values)
