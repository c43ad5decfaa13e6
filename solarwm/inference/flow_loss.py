"""The cheapest sign of camera control: the flow-matching loss of a held-out clip with its own and a
wrong camera.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from solarwm.backbones.seam import Backbone
from solarwm.inference.generate import CaseInputs, case_track, latent_batch
from solarwm.nn.random import keyed_generator

RAW_TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Times before the shift, the same for every clip."""


@torch.inference_mode()
def flow_losses(
    inputs: CaseInputs,
    latents_FCHW: torch.Tensor,
    *,
    cameras: tuple[str, ...],
    shift: float,
    causal: bool = False,
    backbone: Backbone,
    module: nn.Module,
    device: torch.device,
    autocast: torch.dtype | None = None,
) -> dict[str, float]:
    """Mean squared velocity error per camera variant, over fixed times and noise and frames 1..F-1.

    x = (1-s) x0 + s e with the target e - x0; s = shift t / (1 + (shift-1) t); frame 0 is the clean
    anchor at time 0. Noise is keyed by the case's seed and the time's ordinal, so every camera and
    every model sees the same. A `causal` model sees the clean chunks before each noisy one.
    """
    clean = latents_FCHW[None].to(device)
    totals: dict[str, float] = {}
    for camera in cameras:
        track = np.asarray(case_track(inputs, camera))
        conditions = backbone.conditions(latent_batch(inputs, latents_FCHW[None], track).to(device))
        losses = []
        for ordinal, raw in enumerate(RAW_TIMES):
            sigma = shift * raw / (1.0 + (shift - 1.0) * raw)
            generator = keyed_generator(inputs.case.noise_seed, "flow-loss", ordinal, 0)
            noise = torch.randn(clean.shape, generator=generator, dtype=torch.float32).to(device)
            sigma_BF = torch.full(clean.shape[:2], sigma, device=device)
            sigma_BF[:, 0] = 0.0
            weight = sigma_BF[:, :, None, None, None]
            noisy = (1.0 - weight) * clean + weight * noise
            more: dict[str, Any] = {}
            if causal:
                context = backbone.clean_context(clean, shared=False)
                more = {"layout": "teacher_forcing", "context": context}
            with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
                velocity = backbone.velocity(module, noisy, sigma_BF, conditions, **more)
            error = (velocity - (noise - clean))[:, 1:]
            losses.append(float(error.double().square().mean()))
        totals[camera] = sum(losses) / len(losses)
    return totals
