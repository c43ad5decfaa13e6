"""Whether a latent data set is the one a config asks for. Needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from solarwm.data.index import Index
from solarwm.data.latent_records import refuse
from solarwm.data.latent_store import MARKER, read_marker
from solarwm.errors.types import SolarError

_KEYS = {
    "format": "preencode_schema",
    "pixel_frames": "pixel_frames",
    "latent_frames": "latent_frames",
    "height": "height",
    "width": "width",
    "fps": "fps",
    "dtype": "latent_dtype",
}


def require_records(index: Index, data: Any, *, codec_digest: str | None = None) -> None:
    """Refuse (exit 3) a set whose marker tells of another geometry or codec, and rows without record.

    A set without marker beside its indexes (a published recipe) is judged record by record.
    """
    root = Path(data.index_root or data.transport.root)
    marker = read_marker(root)
    fingerprint = marker.get("fingerprint") if marker else None
    if isinstance(fingerprint, dict):
        wanted = {name: getattr(data, key) for name, key in _KEYS.items()}
        if codec_digest is not None:
            wanted["codec_digest"] = codec_digest
        different = [name for name, value in wanted.items() if fingerprint.get(name) != value]
        if different:
            raise SolarError(
                "latent.other-encoder" if different == ["codec_digest"] else "latent.marker",
                "the latent data set was made for another config",
                where=str(root / MARKER),
                why="; ".join(
                    f"{name}: expected {wanted[name]!r}, found {fingerprint.get(name)!r}"
                    for name in different
                ),
                fixes=[
                    f"--set data.{_KEYS[name]}={fingerprint.get(name)}"
                    for name in different
                    if name in _KEYS
                ]
                or ["encode the clips again with solarwm preencode"],
                context={"different": different},
            )
    for row in index.rows:
        found = row.extra.get("preencoded_member")
        if not isinstance(found, str):
            why = f"row {row.ordinal + 1} has no `preencoded_member`; it is a raw clip"
            refuse("latent.contract", "the index is not one of latents", row.sample_id, why)
