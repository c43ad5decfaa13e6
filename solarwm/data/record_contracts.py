"""What the encoder of a family promises of every latent record: names, shapes, number types.

The published contracts (`solarwm.encoder.v1`) have published digests; a small profile has the same
tensors at its own sizes under the format name `solarwm.FAMILY.PROFILE.v1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from solarwm.routes.spec import Profile
from solarwm.storage.digests import blake2s_hex, canonical_json

SCHEMA = "solarwm.encoder.v1"
WAN_CONVENTION = "first-frame-relative-w2c-fp32"
LTX_CONVENTION = "relative_w2c+normalized_K"
H3_CONVENTION = "absolute_c2w+normalized_K"
LTX_SCHEMA = "solarwm_ltx25_video_preencoded_v1"
LTX_READER = "ltx25.v1"
H3_IDENTITY = "official-minimax-h3-codec"
_SAFETENSORS = {"bfloat16": "BF16", "float32": "F32", "int64": "I64"}


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor of a record; a size of None is free."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    is_stored: bool = True
    """False for what the reader makes from the record's camera file."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape keeps the rule."""
        return len(shape) == len(self.shape) and all(
            want is None or want == found for want, found in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderContract:
    """One family at one size."""

    family: str
    format_version: str
    pixel_frames: int
    latent_frames: int
    height: int
    width: int
    camera_convention: str
    tensors: tuple[TensorRule, ...]
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def plain(self) -> dict[str, Any]:
        """The published JSON value."""
        return {
            "schema": SCHEMA,
            "family": self.family,
            "format_version": self.format_version,
            "pixel_frames": self.pixel_frames,
            "latent_frames": self.latent_frames,
            "height": self.height,
            "width": self.width,
            "camera_convention": self.camera_convention,
            "tensors": [
                {"name": rule.name, "shape": list(rule.shape), "dtype": rule.dtype}
                for rule in self.tensors
            ],
            "extras": dict(self.extras),
        }

    @property
    def digest(self) -> str:
        """BLAKE2s of the canonical JSON."""
        return blake2s_hex(canonical_json(self.plain()))

    @property
    def stored(self) -> dict[str, TensorRule]:
        """The tensors that stand in the record's file, by name."""
        return {rule.name: rule for rule in self.tensors if rule.is_stored}


def contract_of(
    family: str,
    profile: Profile,
    *,
    pixel_frames: int,
    height: int,
    width: int,
    dtype: str = "bfloat16",
    silence: bool = False,
    identity: str = H3_IDENTITY,
) -> EncoderContract:
    """The contract of a family at a size; `dtype` is that of latents and prompt states.

    `silence` binds the H3 silence artefact, `identity` names the H3 codec. Raises ValueError for
    frames the VAE cannot encode.
    """
    latents = profile.geometry.latents(pixel_frames)
    if latents is None:
        raise ValueError(f"{family} encodes no clip of {pixel_frames} frames")
    stride = profile.geometry.spatial_stride
    make = {"ltx25_video": _ltx, "minimax_h3": _h3}.get(family, _wan)
    grid = (height // stride, width // stride)
    tensors, version, convention, extras = make(
        family, profile, pixel_frames, latents, grid, dtype, silence
    )
    if profile.name != "released":
        version = f"solarwm.{family}.{profile.name}.v1"
    if family == "minimax_h3":
        extras["encoder_identity"] = identity
    return EncoderContract(
        family=family,
        format_version=version,
        pixel_frames=pixel_frames,
        latent_frames=latents,
        height=height,
        width=width,
        camera_convention=convention,
        tensors=tensors,
        extras=extras,
    )


_Parts = tuple[tuple[TensorRule, ...], str, str, dict[str, Any]]


def _wan(
    family: str,
    profile: Profile,
    frames: int,
    latents: int,
    grid: tuple[int, int],
    dtype: str,
    silence: bool,
) -> _Parts:
    rows, columns = grid
    dims = profile.dims
    tokens = latents * (rows // dims.patch[1]) * (columns // dims.patch[2])
    channels = profile.geometry.channels
    image = family == "wan22_i2v_a14b"
    condition = (TensorRule("i2v_y", (latents, channels + 4, rows, columns), dtype),)
    tensors = (
        TensorRule("latents", (latents, channels, rows, columns), dtype),
        *(condition if image else ()),
        TensorRule("prompt_embeds", (dims.text_len, dims.text_dim), dtype),
        TensorRule("camera_viewmats", (tokens, 4, 4), "float32", is_stored=False),
        TensorRule("camera_K", (tokens, 3, 3), "float32", is_stored=False),
    )
    extras: dict[str, Any] = {"camera_source": "preserve", "caption_source": "frozen"}
    if image:
        extras |= {"condition": "official-first-frame-mask-plus-latent", "vae": "Wan2.1_VAE.pth"}
    else:
        extras["vae_temporal_alignment"] = "0,1,5,9,..."
    return tensors, f"solarwm.{family.replace('_', '-')}.online.v1", WAN_CONVENTION, extras


def _ltx(
    family: str,
    profile: Profile,
    frames: int,
    latents: int,
    grid: tuple[int, int],
    dtype: str,
    silence: bool,
) -> _Parts:
    rows, columns = grid
    stride = profile.geometry.spatial_stride
    version = f"solarwm_ltx25_video_{frames}f_h{rows * stride}_w{columns * stride}_v1"
    if profile.name != "released":
        version = f"solarwm.{family}.{profile.name}.v1"
    channels, dims = profile.geometry.channels, profile.dims
    tensors = (
        TensorRule("video_latent", (channels, latents, rows, columns), dtype),
        TensorRule("first_frame_latent", (channels, 1, rows, columns), dtype),
        TensorRule("video_prompt_embeds", (dims.text_len, dims.text_dim), dtype),
        TensorRule("prompt_attention_mask", (dims.text_len,), "int64"),
        TensorRule("relative_w2c", (latents, 4, 4), "float32"),
        TensorRule("camera_K", (latents, 3, 3), "float32"),
        TensorRule("source_indices", (frames,), "int64"),
        TensorRule("camera_source_indices", (latents,), "int64"),
    )
    artifact = {
        "schema": LTX_SCHEMA,
        "version": version,
        "reader_contract": LTX_READER,
        "tensor_layout": "C,T,H,W",
        "camera_convention": LTX_CONVENTION,
        "caption_cache_stage": "gemma4_feature_extractor_preconnector",
        "model_fps": 24.0,
        "model_fps_usage": "ltx_rope_temporal_positions_only",
        "source_fps_policy": "provenance_only_not_used_for_frame_selection",
        "vae_encode_mode": "direct",
        "tensors": {
            rule.name: {"dtype": _SAFETENSORS[rule.dtype], "shape": list(rule.shape)}
            for rule in tensors
        },
    }
    extras = {
        "artifact_contract": artifact,
        "behavior_status": "unpaired",
        "codec_protocol": "solarwm.ltx25.online_codec.v1",
    }
    return tensors, version, LTX_CONVENTION, extras


def _h3(
    family: str,
    profile: Profile,
    frames: int,
    latents: int,
    grid: tuple[int, int],
    dtype: str,
    silence: bool,
) -> _Parts:
    rows, columns = grid
    channels, width = profile.geometry.channels, profile.dims.text_dim
    tensors = (
        TensorRule("target_latents", (channels, latents, rows, columns), dtype),
        TensorRule("anchor_latents", (channels, 1, rows, columns), dtype),
        TensorRule("prompt_embeds", (None, width), dtype),
        TensorRule("text_token_tags", (None,), "int64"),
        TensorRule("source_frame_indices", (frames,), "int64"),
        TensorRule("camera_c2w", (frames, 4, 4), "float32"),
        TensorRule("camera_K", (frames, 3, 3), "float32"),
    )
    extras: dict[str, Any] = {
        "frame_sampling": "exact_contiguous",
        "qwen_hidden_state": 50,
        "qwen_presentation": "<Picture 1> joint image+caption",
        "source_fps_policy": "audit_only",
        "video_vae_normalization": "config.latents_mean_std",
        "video_vae_posterior": "sample(seed=42)-fp16-round",
    }
    if silence:
        extras["silence_artifact_profile"] = _silence(frames)
    return tensors, f"h3.{frames}f.v1", H3_CONVENTION, extras


def _silence(frames: int) -> dict[str, Any]:
    return {
        "artifact": "official-audiovae-encoded-stereo-zero-waveform",
        "audio_hop_length": 800,
        "audio_sampling_rate": 32000,
        "format": f"h3.{frames}f.v1",
        "normalization": "audio_vae.config.latents_mean_std",
        "posterior": "mode",
        "schema": "solarwm.minimax-h3-silence-profile.v1",
        "tensor": {
            "dtype": "bfloat16",
            "key": f"silence_{frames}f",
            "shape": [2, 32, round(frames / 24 * 40)],
        },
        "waveform": "real_stereo_zero_waveform",
    }
