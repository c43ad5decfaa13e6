"""Pixels and text to latents and back: the shipped small codec, or the published one from files.

Shapes: N pixel frames, Y X pixel height and width, F latent frames, C channels, H W latent height
and width, B prompts, T text tokens, D text width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from solarwm.backbones.seam import VideoCodec, VideoDecoder
from solarwm.backbones.wan22_core.text import encode_words
from solarwm.backbones.wan22_core.umt5 import UMT5Text
from solarwm.backbones.wan22_core.vae import StreamDecoder, build_vae, open_vae
from solarwm.errors.types import SolarError
from solarwm.routes.spec import BackboneSpec, LatentGeometry, Profile

TINY_WEIGHTS = "tiny_vae.safetensors"
TINY_ARGUMENTS = "tiny_vae.json"
CODEC_VERSION = "solarwm.wan22.codec.v1"
SAMPLES = 32
SAMPLE_BYTES = 2**20


class TextEncoder(Protocol):
    """Prompts to states."""

    def encode(self, prompts: Sequence[str]) -> Tensor:
        """States [B,T,D] fp32, rows past each prompt zero."""
        ...


class WordText:
    """The text encoder of the small profiles: one fixed vector a word."""

    def __init__(self, *, length: int, width: int, device: torch.device) -> None:
        self.length = length
        self.width = width
        self.device = device

    def encode(self, prompts: Sequence[str]) -> Tensor:
        """States [B,T,D] fp32, rows past each prompt zero."""
        return encode_words(prompts, length=self.length, width=self.width).to(self.device)


class WanCodec:
    """An `AutoencoderKLWan` with a text encoder, opened on first use. fp32, eval, posterior mean.

    One clip at a time; equal input gives equal bits on one machine.
    """

    def __init__(
        self,
        *,
        open_vae: Callable[[], Any],
        text: TextEncoder,
        digest: str,
        geometry: LatentGeometry,
        device: torch.device,
    ) -> None:
        self.digest = digest
        self.geometry = geometry
        self.device = device
        self._open_vae = open_vae
        self._text = text
        self._vae: Any = None

    @torch.no_grad()
    def encode_video(self, pixels_NYX3: Tensor) -> Tensor:
        """uint8 frames to normalised latents [F,C,H,W], fp32, on the codec's device."""
        frames, height, width, _ = pixels_NYX3.shape
        if self.geometry.latents(frames) is None:
            legal = self.geometry.nearest_frames(frames)
            raise ValueError(f"{frames} frames cannot be encoded; the nearest counts are {legal}")
        multiple = self.geometry.size_multiple
        if height % multiple or width % multiple:
            raise ValueError(f"{width}x{height} pixels are not multiples of {multiple}")
        vae = self._open()
        video = pixels_NYX3.to(self.device).permute(3, 0, 1, 2)[None].float() / 127.5 - 1.0
        mean_1CFHW = vae.encode(video).latent_dist.mode()
        latents = (mean_1CFHW - self._shift) / self._scale
        return latents[0].transpose(0, 1).contiguous()

    def decode_video(self, latents_FCHW: Tensor) -> Tensor:
        """Normalised latents to uint8 frames [N,Y,X,3], on the codec's device."""
        return self.decoder().push(latents_FCHW)

    def decoder(self) -> VideoDecoder:
        """A fresh decoder of one clip's latents, given piece by piece."""
        vae = self._open()
        return StreamDecoder(vae, self._shift, self._scale)

    def encode_text(self, prompts: Sequence[str]) -> Tensor:
        """States [B,T,D] fp32, rows past each prompt zero, on the codec's device."""
        return self._text.encode(prompts)

    def _open(self) -> Any:
        if self._vae is None:
            vae = self._open_vae().to(self.device)
            self._check(vae)
            mean = torch.tensor(vae.config.latents_mean, device=self.device)
            std = torch.tensor(vae.config.latents_std, device=self.device)
            self._shift = mean.view(1, -1, 1, 1, 1)
            self._scale = std.view(1, -1, 1, 1, 1)
            self._vae = vae
        return self._vae

    def _check(self, vae: Any) -> None:
        geometry = self.geometry
        found = (
            vae.config.z_dim,
            vae.config.scale_factor_spatial,
            vae.config.scale_factor_temporal,
        )
        expected = (geometry.channels, geometry.spatial_stride, geometry.period_frames)
        if found != expected:
            raise SolarError(
                "weights.shape",
                "the autoencoder is that of another model",
                why=f"Expected latent channels, spatial and temporal stride {expected}, "
                f"found {found}.",
                fixes=["Set model.assets.vae to the autoencoder of this family."],
            )


def codec_digest(arguments: Mapping[str, Any], weights: bytes, text: str) -> str:
    """BLAKE2b-256 of codec version, constructor arguments, text rule and weights."""
    head = json.dumps([CODEC_VERSION, dict(arguments), text], sort_keys=True).encode()
    return blake2b(head + b"\n" + weights, digest_size=32).hexdigest()


def open_tiny_codec(folder: Path, profile: Profile, *, device: torch.device) -> WanCodec:
    """The codec whose two files lie in `folder`; raises `weights.missing` when they do not."""
    from safetensors.torch import load

    weights_path, arguments_path = folder / TINY_WEIGHTS, folder / TINY_ARGUMENTS
    missing = [path for path in (weights_path, arguments_path) if not path.is_file()]
    if missing:
        raise SolarError(
            "weights.missing",
            f"the small VAE is not there: {missing[0].name}",
            where=str(missing[0]),
            why="The package ships it; this installation lost it.",
            fixes=[
                "pip install --force-reinstall solarwm",
                "python tools/train_tiny_vae.py --out DIR",
            ],
        )
    weights = weights_path.read_bytes()
    document = json.loads(arguments_path.read_text(encoding="utf-8"))
    arguments = document.get("arguments", document)
    dims = profile.dims
    state = load(weights)

    def opened() -> Any:
        vae = build_vae(arguments)
        vae.load_state_dict({key: value.float() for key, value in state.items()})
        return vae

    return WanCodec(
        open_vae=opened,
        text=WordText(length=dims.text_len, width=dims.text_dim, device=device),
        digest=codec_digest(arguments, weights, f"{dims.text_len}x{dims.text_dim}"),
        geometry=profile.geometry,
        device=device,
    )


def open_codec(
    profile: Profile,
    spec: BackboneSpec,
    *,
    base_path: Path | None,
    assets: Any,
    device: torch.device,
) -> VideoCodec:
    """The codec of a profile: the published files of `assets` for `released`, else what is shipped.

    Raises `weights.missing` (exit 3) for files that are not there.
    """
    if profile.name != "released":
        return open_tiny_codec(Path(__file__).parent, profile, device=device)
    if base_path is None or assets is None:
        raise SolarError(
            "weights.codec-unavailable",
            f"{spec.title}: the autoencoder and the text encoder are not named",
            where="model.assets",
            why="The released profile reads them from model.base_path and model.assets.",
            fixes=[
                "--set model.base_path=/absolute/path/of/the/base/model",
                "--set model.profile=tiny",
            ],
        )
    vae, text, tokenizer = (
        base_path / getattr(assets, name) for name in ("vae", "text_encoder", "tokenizer")
    )
    for path in (vae, text, tokenizer):
        if not path.exists():
            raise SolarError(
                "weights.missing",
                f"{path.name} is not there",
                where=str(path),
                why="model.assets names it below model.base_path.",
            )
    return WanCodec(
        open_vae=lambda: open_vae(vae),
        text=UMT5Text(text, tokenizer, length=profile.dims.text_len, device=device),
        digest=files_digest((vae, text, tokenizer)),
        geometry=profile.geometry,
        device=device,
    )


def files_digest(paths: Sequence[Path]) -> str:
    """BLAKE2b-256 of codec version, sizes and evenly spaced samples of all files.

    32 samples of 1 MiB a file: reading tens of gigabytes at every start would cost minutes.
    """
    digest = blake2b(CODEC_VERSION.encode(), digest_size=32)
    for root in paths:
        files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for path in files:
            size = path.stat().st_size
            digest.update(f"|{path.name}|{size}|".encode())
            last = max(0, size - SAMPLE_BYTES)
            with path.open("rb") as stream:
                for sample in range(SAMPLES):
                    offset = sample * last // (SAMPLES - 1)
                    stream.seek(offset)
                    digest.update(stream.read(SAMPLE_BYTES))
                    if not last:
                        break
    return digest.hexdigest()
