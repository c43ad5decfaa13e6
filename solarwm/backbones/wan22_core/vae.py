"""The Wan autoencoder from a published `.pth` or a diffusers folder, and decoding it piece by piece.

Shapes: F latent frames, C channels, H W latent height and width, N pixel frames, Y X pixel height and
width.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solarwm.backbones.wan22_core.codec_names import is_published_vae, vae_to_diffusers
from solarwm.backbones.weight_files import TensorSource, fill
from solarwm.errors.types import SolarError

# Mean and deviation of each latent channel of the published 2.2 autoencoder; no file holds them. Those
# of 2.1 are the defaults of the library class.
# fmt: off
MEAN_48 = (
    -0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174, 0.1838, 0.1557,
    -0.1382, 0.0542, 0.2813, 0.0891, 0.1570, -0.0098, 0.0375, -0.1825,
    -0.2246, -0.1207, -0.0698, 0.5109, 0.2665, -0.2108, -0.2158, 0.2502,
    -0.2055, -0.0322, 0.1109, 0.1567, -0.0729, 0.0899, -0.2799, -0.1230,
    -0.0313, -0.1649, 0.0117, 0.0723, -0.2839, -0.2083, -0.0520, 0.3748,
    0.0152, 0.1957, 0.1433, -0.2944, 0.3573, -0.0548, -0.1681, -0.0667,
)
# fmt: on
# fmt: off
STD_48 = (
    0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.4990, 0.4818, 0.5013,
    0.8158, 1.0344, 0.5894, 1.0901, 0.6885, 0.6165, 0.8454, 0.4978,
    0.5759, 0.3523, 0.7135, 0.6804, 0.5833, 1.4146, 0.8986, 0.5659,
    0.7069, 0.5338, 0.4889, 0.4917, 0.4069, 0.4999, 0.6866, 0.4093,
    0.5709, 0.6065, 0.6415, 0.4944, 0.5726, 1.2042, 0.5458, 1.6887,
    0.3971, 1.0600, 0.3943, 0.5537, 0.5444, 0.4089, 0.7468, 0.7744,
)
# fmt: on


def build_vae(arguments: Mapping[str, Any]) -> Any:
    """An `AutoencoderKLWan` of these constructor arguments in eval mode, without gradients."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan

    vae = AutoencoderKLWan(**arguments)
    return vae.eval().requires_grad_(False)


def open_vae(path: Path) -> Any:
    """The autoencoder of a published `.pth` (2.1 or 2.2) or a diffusers folder, on the CPU, fp32.

    A published file says its sizes by its shapes. Raises `weights.*` (exit 3).
    """
    source = TensorSource.open(path, "live")
    names = source.names()
    if is_published_vae(names):
        arguments = published_arguments(source.shapes(), path)
        res_blocks = arguments["num_res_blocks"]

        def rename(name: str) -> str | None:
            return vae_to_diffusers(name, res_blocks=res_blocks)
    else:
        arguments = _written_arguments(path)

        def rename(name: str) -> str | None:
            return name

    with torch.device("meta"):
        vae = build_vae(arguments)
    fill(vae, path, source, rename)
    return vae.float().eval().requires_grad_(False)


def published_arguments(shapes: Mapping[str, Sequence[int]], path: Path) -> dict[str, Any]:
    """Constructor arguments read off the shapes of a published file.

    Raises `weights.no-match` (exit 3) for a file that is no Wan autoencoder.
    """
    try:
        return _arguments(shapes)
    except (KeyError, ValueError, IndexError) as error:
        raise SolarError(
            "weights.no-match",
            f"{path.name} is no Wan autoencoder",
            where=str(path),
            why=f"Expected the published encoder and decoder, not found: {error}.",
        ) from error


def _arguments(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    nested = "encoder.downsamples.0.downsamples.0.residual.2.weight" in shapes
    base, pixels = shapes["encoder.conv1.weight"][:2]
    channels = shapes["conv2.weight"][0]
    widths, temporal, blocks = [], [], 0
    if nested:
        level = 0
        while f"encoder.downsamples.{level}.downsamples.0.residual.2.weight" in shapes:
            here = f"encoder.downsamples.{level}.downsamples"
            blocks = 0
            while f"{here}.{blocks}.residual.2.weight" in shapes:
                blocks += 1
            widths.append(shapes[f"{here}.{blocks - 1}.residual.6.weight"][0])
            if f"{here}.{blocks}.resample.1.weight" in shapes:
                temporal.append(f"{here}.{blocks}.time_conv.weight" in shapes)
            level += 1
    else:
        index, inside = 0, 0
        while True:
            here = f"encoder.downsamples.{index}"
            if f"{here}.residual.6.weight" in shapes:
                inside += 1
                width = shapes[f"{here}.residual.6.weight"][0]
            elif f"{here}.resample.1.weight" in shapes:
                widths.append(width)
                temporal.append(f"{here}.time_conv.weight" in shapes)
                blocks, inside = inside, 0
            else:
                widths.append(width)
                break
            index += 1
    patch = 2 if pixels == 12 else None
    result = {
        "base_dim": base,
        "decoder_base_dim": shapes["decoder.head.0.gamma"][0],
        "z_dim": channels,
        "dim_mult": [width // base for width in widths],
        "num_res_blocks": blocks,
        "temperal_downsample": temporal,
        "is_residual": nested,
        "in_channels": pixels,
        "out_channels": pixels,
        "patch_size": patch,
        "scale_factor_temporal": 2 ** sum(temporal),
        "scale_factor_spatial": 2 ** len(temporal) * (patch or 1),
    }
    if channels == len(MEAN_48):
        result |= {"latents_mean": list(MEAN_48), "latents_std": list(STD_48)}
    elif channels != 16:
        raise ValueError(f"latent statistics of {channels} channels")
    return result


def _written_arguments(path: Path) -> dict[str, Any]:
    config = (path if path.is_dir() else path.parent) / "config.json"
    if not config.is_file():
        raise SolarError(
            "weights.missing",
            "the autoencoder's config.json is not there",
            where=str(config),
            why="Weights under diffusers names need the config.json beside them.",
        )
    document = json.loads(config.read_text(encoding="utf-8"))
    return {key: value for key, value in document.items() if not key.startswith("_")}


class StreamDecoder:
    """Decodes latents in the order they come; what it keeps is constant in their number.

    The first latent gives one pixel frame, every later one four (`scale_factor_temporal`).
    """

    def __init__(self, vae: Any, shift: Tensor, scale: Tensor) -> None:
        self._vae = vae
        self._shift = shift
        self._scale = scale
        self._cache: list[Any] = [None] * vae._cached_conv_counts["decoder"]
        self._begun = False

    def push(self, latents_FCHW: Tensor) -> Tensor:
        """uint8 frames [N,Y,X,3] of the next latents, on the codec's device."""
        parts = [
            ((part.clamp(-1, 1) + 1.0) * 127.5).round().to(torch.uint8)
            for part in self.pictures(latents_FCHW)
        ]
        return torch.cat(parts).contiguous()

    @torch.no_grad()
    def pictures(self, latents_FCHW: Tensor) -> Iterator[Tensor]:
        """The same latent by latent, fp32 [n,Y,X,3], -1..1 and a little past it."""
        from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify

        latents = latents_FCHW.to(self._shift.device).float().transpose(0, 1)[None]
        mixed = latents * self._scale + self._shift
        for index in range(mixed.shape[2]):
            # Every step one latent at a time: the bits do not depend on how the latents came.
            here = self._vae.post_quant_conv(mixed[:, :, index : index + 1])
            out = self._vae.decoder(
                here, feat_cache=self._cache, feat_idx=[0], first_chunk=not self._begun
            )
            self._begun = True
            if self._vae.config.patch_size is not None:
                out = unpatchify(out, patch_size=self._vae.config.patch_size)
            yield out[0].permute(1, 2, 3, 0)
