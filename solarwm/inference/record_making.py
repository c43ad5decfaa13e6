"""From a raw clip to a latent record, family by family: the one thing a new family adds to preencoding.

Shapes: N pixel frames, F latent frames, C latent channels, H W latent height and width, T text
tokens, D text width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solarwm.data.framing import H3, LTX, WAN
from solarwm.data.latent_records import suffix_of, write_record
from solarwm.data.latent_store import SAMPLE_SCHEMA, Record
from solarwm.data.records import RawClip, manifest_of, read_clip
from solarwm.data.rows import Row
from solarwm.data.stored_tensors import StoredTensor, stored
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json

if TYPE_CHECKING:
    from solarwm.backbones.seam import VideoCodec
    from solarwm.data.cameras import CameraRules
    from solarwm.data.record_contracts import EncoderContract
    from solarwm.data.shards import ShardReader

TensorMaker = Callable[["VideoCodec", RawClip, str], dict[str, StoredTensor]]


def wan_tensors(codec: VideoCodec, clip: RawClip, dtype: str) -> dict[str, StoredTensor]:
    """`latents` [F,C,H,W] and `prompt_embeds` [T,D] of a clip without an image condition."""
    import torch

    latents = codec.encode_video(torch.from_numpy(clip.pixels_NYX3)).float().cpu().numpy()
    text = codec.encode_text([clip.caption])[0].float().cpu().numpy()
    return {"latents": stored(latents, dtype), "prompt_embeds": stored(text, dtype)}


MAKERS: dict[str, TensorMaker] = {"wan22_ti2v_5b": wan_tensors}
"""How each family makes its tensors."""
FRAMINGS = {"ltx25_video": LTX, "minimax_h3": H3}
"""How families other than Wan bring a picture to the canvas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMaker:
    """Makes the records of one data set with one codec."""

    family: str
    contract: EncoderContract
    codec: VideoCodec
    dtype: str
    schema: str
    """Name of the latent format; the `version` of every record."""
    fps: float
    rules: CameraRules

    def make(self, reader: ShardReader, row: Row) -> Record:
        """Read, encode and check one clip.

        Raises SolarError (exit 3) `shard.*`, `video.*`, `camera.*`, `index.*` or `latent.*`.
        """
        contract = self.contract
        manifest = manifest_of(reader, row)
        clip = read_clip(
            reader,
            row,
            start_frame=start_of(row),
            frames=contract.pixel_frames,
            height=contract.height,
            width=contract.width,
            fps=self.fps,
            rules=self.rules,
            framing=FRAMINGS.get(self.family, WAN),
        )
        _require_consecutive(row, clip)
        tensors = MAKERS[self.family](self.codec, clip, self.dtype)
        data = write_record(
            contract, tensors, sample_id=row.sample_id, codec_identity=self.codec.digest
        )
        assert row.camera_member is not None
        facts = self._facts(row, clip, tensors, data)
        members = {
            suffix_of(self.family): data,
            "camera.npz": reader.read(row.shard, row.camera_member, shard_size=row.shard_size),
            "manifest.json": canonical_json({**manifest, "preencoding": facts}),
        }
        return self._record(row, clip, members)

    def _facts(
        self, row: Row, clip: RawClip, tensors: Mapping[str, StoredTensor], data: bytes
    ) -> dict[str, Any]:
        contract = self.contract
        shapes = {
            "latent_shape": "latents",
            "prompt_shape": "prompt_embeds",
            "i2v_y_shape": "i2v_y",
        }
        return {
            "version": self.schema,
            "source_sample_id": source_of(row),
            "source_dataset": row.extra.get("source_dataset") or row.dataset,
            "window_index": row.extra.get("window_index", 0),
            "window_count": row.extra.get("window_count", 1),
            "window_hash_namespace": row.extra.get("window_hash_namespace", ""),
            "start_frame": clip.start_frame,
            "source_frame_first": clip.frame_indices[0],
            "source_frame_last": clip.frame_indices[-1],
            "pixel_frames": contract.pixel_frames,
            "latent_frames": contract.latent_frames,
            "target_h": contract.height,
            "target_w": contract.width,
            "dtype": self.dtype,
            **{key: list(tensors[name].shape) for key, name in shapes.items() if name in tensors},
            "encoder_contract_digest": contract.digest,
            "codec_digest": self.codec.digest,
            "tensors_digest": blake2s_hex(data),
            "caption_source": "frozen",
            "camera_source": "preserve",
        }

    def _record(self, row: Row, clip: RawClip, members: dict[str, bytes]) -> Record:
        digest = self.contract.digest
        folder = f"samples/{blake2s_hex(row.sample_id.encode())[:24]}"
        identity = {
            "sample_id": row.sample_id,
            "key": row.key,
            "source_sample_id": source_of(row),
            "start_frame": clip.start_frame,
            "source_frame_indices": list(clip.frame_indices),
            "encoder_contract_digest": digest,
        }
        return Record(
            sample_id=row.sample_id,
            ordinal=row.ordinal,
            members=members,
            provenance={
                "schema": SAMPLE_SCHEMA,
                **identity,
                "members": {suffix: f"{folder}/{suffix}" for suffix in sorted(members)},
                "metadata": {},
            },
            row={
                **identity,
                "preencoded_member": f"{folder}/{suffix_of(self.family)}",
                "camera_member": f"{folder}/camera.npz",
                "manifest_member": f"{folder}/manifest.json",
                "epoch_repeats": row.epoch_repeats,
                "dataset": row.dataset,
                "kept_tier": row.extra["kept_tier"],
                "split": split_of(row),
                "caption": clip.caption,
                "num_frames": clip.source_num_frames,
                "fps": row.fps or clip.fps,
                "metadata": {},
            },
        )


def start_of(row: Row) -> int:
    """The source frame a clip begins with: that of the index, else 0."""
    if row.start_frame is not None:
        return row.start_frame
    return row.source_frame_indices[0] if row.source_frame_indices else 0


def source_of(row: Row) -> str:
    """The clip a window was cut from; the row itself where it is no window."""
    return str(row.extra.get("source_sample_id") or row.sample_id)


def split_of(row: Row) -> str:
    """`train` or `test`, empty where the row does not tell."""
    names = ("split", "role", "recipe_role")
    return next((str(row.extra[name]) for name in names if row.extra.get(name)), "")


def row_faults(row: Row, frames: int) -> list[str]:
    """What a row lacks to be encoded."""
    faults: list[str] = []
    if not row.dataset:
        faults.append("`dataset` is missing")
    if row.extra.get("kept_tier") not in ("high", "xhigh"):
        faults.append(f"`kept_tier` must be high or xhigh, it is {row.extra.get('kept_tier')!r}")
    if split_of(row) not in ("train", "test"):
        faults.append(f"`split` must be train or test, it is {split_of(row) or None!r}")
    found = len(row.source_frame_indices or ())
    if found and found != frames:
        faults.append(f"the window has {found} frames, data.pixel_frames is {frames}")
    faults += [
        f"`{name}` is missing"
        for name in ("video_member", "camera_member")
        if getattr(row, name) is None
    ]
    return faults


def _require_consecutive(row: Row, clip: RawClip) -> None:
    first, last = clip.frame_indices[0], clip.frame_indices[-1]
    if last - first + 1 != len(clip.frame_indices):
        raise SolarError(
            "latent.contract",
            f"a latent record holds consecutive source frames: {row.sample_id}",
            where=row.sample_id,
            why=f"at {row.fps:g} source fps, a clip of {clip.fps:g} fps takes frames {first} to "
            f"{last} for {len(clip.frame_indices)}",
            fixes=[f"--set data.fps={row.fps:g}", "re-time the videos when they are imported"],
            context={"sample_id": row.sample_id},
        )
