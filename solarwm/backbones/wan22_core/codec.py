"""The shipped small VAE and text encoder of the Wan profiles that run on a CPU.

Shapes: N pixel frames, Y X pixel height and width, F latent frames, C channels, H W latent height
and width, B prompts, T text tokens, D text width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solarwm.backbones.seam import VideoCodec
from solarwm.backbones.wan22_core.text import encode_words
from solarwm.errors.types import SolarError
from solarwm.routes.spec import BackboneSpec, LatentGeometry, Profile

TINY_WEIGHTS = "tiny_vae.safetensors"
TINY_ARGUMENTS = "tiny_vae.json"
CODEC_VERSION = "solarwm.wan22.codec.v1"


class TinyCodec:
    """A small `AutoencoderKLWan` with the word-hash text encoder. fp32, eval, posterior mean.

    One clip at a time; equal input gives equal bits on one machine.
    """

    def __init__(
        self,
        *,
        arguments: Mapping[str, Any],
        state: Mapping[str, Tensor],
        digest: str,
        geometry: LatentGeometry,
        text_len: int,
        text_dim: int,
        device: torch.device,
    ) -> None:
        self.digest = digest
        self.geometry = geometry
        self.text_len = text_len
        self.text_dim = text_dim
        self.device = device
        self._arguments = dict(arguments)
        self._state: Mapping[str, Tensor] | None = state
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

    @torch.no_grad()
    def decode_video(self, latents_FCHW: Tensor) -> Tensor:
        """Normalised latents to uint8 frames [N,Y,X,3], on the codec's device."""
        vae = self._open()
        latents_1CFHW = latents_FCHW.to(self.device).float().transpose(0, 1)[None]
        video = vae.decode(latents_1CFHW * self._scale + self._shift).sample[0]
        pixels = ((video.clamp(-1, 1) + 1.0) * 127.5).round().to(torch.uint8)
        return pixels.permute(1, 2, 3, 0).contiguous()

    def encode_text(self, prompts: Sequence[str]) -> Tensor:
        """States [B,T,D] fp32, rows past each prompt zero, on the codec's device."""
        states = encode_words(prompts, length=self.text_len, width=self.text_dim)
        return states.to(self.device)

    def _open(self) -> Any:
        if self._vae is None:
            vae = build_vae(self._arguments)
            assert self._state is not None
            vae.load_state_dict({key: value.float() for key, value in self._state.items()})
            self._state = None
            self._vae = vae.to(self.device)
            mean = torch.tensor(self._arguments["latents_mean"], device=self.device)
            std = torch.tensor(self._arguments["latents_std"], device=self.device)
            self._shift = mean.view(1, -1, 1, 1, 1)
            self._scale = std.view(1, -1, 1, 1, 1)
        return self._vae


def build_vae(arguments: Mapping[str, Any]) -> Any:
    """An `AutoencoderKLWan` of these constructor arguments in eval mode, without gradients."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan

    vae = AutoencoderKLWan(**arguments)
    return vae.eval().requires_grad_(False)


def codec_digest(arguments: Mapping[str, Any], weights: bytes, text: str) -> str:
    """BLAKE2b-256 of codec version, constructor arguments, text rule and weights."""
    head = json.dumps([CODEC_VERSION, dict(arguments), text], sort_keys=True).encode()
    return blake2b(head + b"\n" + weights, digest_size=32).hexdigest()


def open_tiny_codec(folder: Path, profile: Profile, *, device: torch.device) -> TinyCodec:
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
    text = f"{profile.dims.text_len}x{profile.dims.text_dim}"
    return TinyCodec(
        arguments=arguments,
        state=load(weights),
        digest=codec_digest(arguments, weights, text),
        geometry=profile.geometry,
        text_len=profile.dims.text_len,
        text_dim=profile.dims.text_dim,
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
    """The codec of a profile. The released profile needs the published VAE and text encoder."""
    if profile.name != "released":
        return open_tiny_codec(Path(__file__).parent, profile, device=device)
    raise SolarError(
        "weights.codec-unavailable",
        f"{spec.title}: the released VAE and text encoder cannot be opened",
        where=str(base_path) if base_path else None,
        why="This release encodes pixels and text with the small shipped codec only; the released "
        "profile trains from pre-encoded latents.",
        fixes=["--set model.profile=tiny", "--set data.encoding=preencoded"],
    )
