"""The start of a walk (`solarwm play`) against its course: seconds from the picture to the first frames of
the screen, over those of a later chunk.

Tiny model with random weights and the small VAE, four steps a chunk, as configs/examples/quickstart.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from benchmarks.ratio import Ratio, measure
from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.camera.intrinsics import fixed_intrinsics
from solarwm.inference.plan import AUTOREGRESSIVE, PassPlan
from solarwm.play.world import Engine, Start, World


def rows(*, rounds: int) -> list[Ratio]:
    """The first chunk over a later one; at most two are asked."""
    engine = _engine()
    walking = World(engine, _start(), seed=0)
    walking.advance("w")
    return [
        measure(
            "first chunk of a walk, picture and text encoded with it",
            lambda: World(engine, _start(), seed=0).advance("w"),
            lambda: walking.advance("w"),
            anchor_name="a later chunk",
            target=2.0,
            rounds=rounds,
        )
    ]


def _engine() -> Engine:
    device = torch.device("cpu")
    backbone = create(SPEC.profiles["tiny"], SimpleNamespace(max_prior_clean_chunks=2))
    assets = SimpleNamespace(vae="builtin", text_encoder="builtin", tokenizer="builtin")
    return Engine(
        backbone=backbone,
        module=backbone.build(device=device, seed=0).eval(),
        codec=backbone.codec(base_path=None, assets=assets, device=device),
        plan=PassPlan(
            name="walk",
            weights="live",
            solver="self_forcing",
            num_inference_steps=4,
            camera="source",
            latents=0,
            shift=4.0,
            mode=AUTOREGRESSIVE,
            levels=(1.0, 0.923, 0.8, 0.571),
        ),
        device=device,
    )


def _start() -> Start:
    return Start(
        name="grey",
        picture_YX3=np.full((64, 96, 3), 128, np.uint8),
        prompt="a room",
        intrinsics_33=fixed_intrinsics(),
    )
