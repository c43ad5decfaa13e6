"""One encoded clip of a Wan latent data set, from its row and shard to checked numbers and cameras.

Shapes: F latent frames, C latent channels, H W latent height and width, T text tokens, D text width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solarwm.data.cameras import CameraRules
from solarwm.data.latent_records import read_record, refuse
from solarwm.data.record_contracts import EncoderContract
from solarwm.data.records import Track, manifest_of, read_cameras
from solarwm.data.rows import Row
from solarwm.data.shards import ShardReader
from solarwm.data.windows import window_fault
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentFormat:
    """What a run expects of every record it reads."""

    contract: EncoderContract
    schema: str
    """`data.preencode_schema`; the old spelling with underscores is read too."""
    codec_digest: str
    """The codec of the run; records of ours tell theirs, published ones do not."""
    window_assignment: str
    fps: float
    rules: CameraRules


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentClip:
    """Latents [F,C,H,W] and prompt states [T,D] as fp32, with cameras and words."""

    track: Track
    latents_FCHW: NDArray[np.float32]
    text_TD: NDArray[np.float32]


def read_latent_clip(reader: ShardReader, row: Row, wanted: LatentFormat) -> LatentClip:
    """Read and check one record; cameras are rebuilt from the source track it carries.

    Raises SolarError (exit 3) `shard.*`, `camera.*`, `index.*`, `latent.*`, each naming the sample.
    """
    contract = wanted.contract
    member = row.extra.get("preencoded_member")
    if not isinstance(member, str):
        refuse(
            "latent.contract",
            "the row names no latent record",
            row.sample_id,
            "`preencoded_member` is missing; raw clips need data.encoding: online",
        )
    start = start_frame_of(row)
    manifest = manifest_of(reader, row)
    block = manifest.get("preencoding")
    if not isinstance(block, Mapping):
        refuse(
            "latent.manifest",
            "the manifest has no preencoding block",
            row.sample_id,
            "`preencoding` must tell how the record was made",
        )
    check_manifest(block, row, start, wanted)
    data = reader.read(row.shard, member, shard_size=row.shard_size)
    if "codec_digest" in block and block.get("tensors_digest") != blake2s_hex(data):
        why = f"digest {blake2s_hex(data)[:16]}, the manifest says {block.get('tensors_digest')!r}"
        refuse("latent.unreadable", "the latent record was altered", row.sample_id, why)
    tensors = read_record(contract, data, sample_id=row.sample_id)
    track = read_cameras(
        reader,
        row,
        start_frame=start,
        frames=contract.pixel_frames,
        height=contract.height,
        width=contract.width,
        fps=wanted.fps,
        rules=wanted.rules,
    )
    last = start + contract.pixel_frames - 1
    if track.frame_indices[-1] != last:
        why = f"{track.fps:g} fps needs frames up to {track.frame_indices[-1]}, the record ends at {last}"
        refuse("latent.contract", "the record has another frame rate", row.sample_id, why)
    return LatentClip(
        track=track,
        latents_FCHW=tensors["latents"].widened(),
        text_TD=tensors["prompt_embeds"].widened(),
    )


def start_frame_of(row: Row) -> int:
    """The source frame a record begins with, by its row; 0 where the row does not tell."""
    return row.start_frame or 0


def check_manifest(block: Mapping[str, Any], row: Row, start: int, wanted: LatentFormat) -> None:
    """Whether the `preencoding` block of a manifest speaks of the record the run wants.

    Raises SolarError (exit 3) `latent.manifest` or `latent.other-encoder`, naming the sample, what
    was expected and what was found.
    """
    contract = wanted.contract
    versions = (wanted.schema, wanted.schema.replace(".", "_"))
    if block.get("version") not in versions:
        why = f"expected {wanted.schema!r}, found {block.get('version')!r}"
        refuse("latent.manifest", "the record has another format", row.sample_id, why)
    expected: dict[str, object] = {
        "pixel_frames": contract.pixel_frames,
        "latent_frames": contract.latent_frames,
        "target_h": contract.height,
        "target_w": contract.width,
        "dtype": contract.stored["latents"].dtype,
        "latent_shape": list(contract.stored["latents"].shape),
        "prompt_shape": list(contract.stored["prompt_embeds"].shape),
        "start_frame": start,
        "source_frame_first": start,
        "source_frame_last": start + contract.pixel_frames - 1,
    }
    for name, value in expected.items():
        found = block.get(name)
        if found != value or isinstance(found, bool):
            raise SolarError(
                "latent.manifest",
                f"the record does not fit the data section: {row.sample_id}",
                where=row.sample_id,
                why=f"{name}: expected {value!r}, found {found!r}",
                fixes=_fixes(name, found),
                context={"sample_id": row.sample_id, "expected": value, "found": found},
            )
    made_by = block.get("codec_digest")
    if made_by is not None and wanted.codec_digest and made_by != wanted.codec_digest:
        why = f"expected codec {wanted.codec_digest[:16]}, found {str(made_by)[:16]}"
        refuse("latent.other-encoder", "the record was made by another codec", row.sample_id, why)
    if block.get("window_hash_namespace") and wanted.window_assignment:
        fault = window_fault(
            block,
            frames=contract.pixel_frames,
            num_frames=row.num_frames,
            assignment=wanted.window_assignment,
            sample_id=row.sample_id,
        )
        if fault:
            refuse("latent.manifest", "the window of the record is wrong", row.sample_id, fault)


def _fixes(name: str, found: object) -> list[str]:
    keys = {
        "pixel_frames": "data.pixel_frames",
        "target_h": "data.height",
        "target_w": "data.width",
        "dtype": "data.latent_dtype",
    }
    if name in keys and isinstance(found, int | str):
        return [f"--set {keys[name]}={found}", "encode the clips again with solarwm preencode"]
    return ["encode the clips again with solarwm preencode"]
