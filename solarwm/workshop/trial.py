"""One forward of two files of weights on the same keyed inputs: how far apart their outputs are.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, T text tokens, D text width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from solarwm.checkpoints.sources import load_source, open_source
from solarwm.config.resolve import ResolvedRun
from solarwm.config.route import load
from solarwm.data.tensors import LatentBatch
from solarwm.inference.plan import endpoint_gate
from solarwm.nn.random import keyed_generator

LEVEL = 0.6
"""Noise level of the trial."""


@torch.no_grad()
def output_error(resolved: ResolvedRun, one: Path, two: Path, *, weights: str = "live") -> float:
    """||v_two - v_one|| / ||v_one|| of the velocity of one clip of the config's size, every frame
    seeing every frame, fp32 on the CPU.

    Raises `weights.*` (exit 3) for a file that does not fit the model of the config.
    """
    spec, config = resolved.route.spec, resolved.config
    profile = spec.profiles[config.model.profile]
    backbone = load(spec.heavy)(profile, config.model)
    batch = _batch(profile, config.data)
    conditions = backbone.conditions(batch)
    sigma = torch.full(batch.latents_BFCHW.shape[:2], LEVEL)
    found = []
    for path in (one, two):
        module = backbone.build(device="cpu", seed=0, endpoint_gate=endpoint_gate(resolved)).eval()
        source = open_source(path)
        load_source(source, backbone, module, weights=weights if path == one else "live")
        found.append(backbone.velocity(module, batch.latents_BFCHW, sigma, conditions))
    return float((found[1] - found[0]).norm() / found[0].norm().clamp(min=1e-30))


def _batch(profile: Any, data: Any) -> LatentBatch:
    draw = keyed_generator(0, "trial", 0, 0)
    stride = profile.geometry.spatial_stride
    frames = data.latent_frames
    size = (data.height // stride, data.width // stride)
    view = torch.eye(4).repeat(1, frames, 1, 1)
    view[0, :, 2, 3] = torch.arange(frames) * 0.05
    return LatentBatch(
        latents_BFCHW=torch.randn(1, frames, profile.geometry.channels, *size, generator=draw),
        text_BTD=torch.randn(1, profile.dims.text_len, profile.dims.text_dim, generator=draw),
        viewmats_BF44=view,
        intrinsics_B33=torch.tensor([[[0.505, 0, 0.5], [0, 0.898, 0.5], [0, 0, 1.0]]]),
        sample_ids=("trial",),
        start_frames=(0,),
        slots=(0,),
        occurrences=(0,),
    )
