"""The ratios of teacher forcing and of the cached rollout on any device, timed with the device idle at
both ends. The anchors are those of `forcing.py`, `step.py` and `rollout.py`, moved there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from benchmarks import forcing, rollout
from benchmarks.ratio import Ratio, measure
from benchmarks.step import (
    SIZES,
    Inputs,
    Size,
    inputs,
    library_forward,
    library_model,
    our_model,
    stepper,
)
from solarwm.backbones.wan22_core.conditions import WanConditions
from solarwm.nn.cache import CleanContext
from solarwm.nn.camera_attention import CameraMatrices
from solarwm.nn.layouts import ForcedLayout, forced_layout
from solarwm.training.optim import adamw

ROUNDS = 7


class DeviceRollout(rollout.Rollout):
    """The rollout of `rollout.py` with module, latents and conditions on a device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.module.to(device)
        self.text, self.sigma = self.text.to(device), self.sigma.to(device)
        self._latents = cache(lambda chunk: super(DeviceRollout, self).latents(chunk).to(device))

    def latents(self, chunk: int) -> Tensor:
        """Clean latents of a chunk."""
        return self._latents(chunk)

    def conditions(self, start: int, stop: int) -> WanConditions:
        """Text and a slowly walking camera for the chunks start..stop-1."""
        part = super().conditions(start, stop)
        view, lens = part.viewmats_BF44, part.intrinsics_BF33
        assert view is not None
        assert lens is not None
        return replace(
            part, viewmats_BF44=view.to(self.device), intrinsics_BF33=lens.to(self.device)
        )


def rows(device: torch.device) -> list[Ratio]:
    """Training step, teacher forcing and rollout."""
    return [*step_rows(SIZES[1], device), *forcing_rows(SIZES[1], device), *rollout_rows(device)]


def step_rows(size: Size, device: torch.device) -> list[Ratio]:
    """Our step with cameras against diffusers' without."""
    model, data = our_model(size), _moved(size, device)
    twin = library_model(size, model).to(device)
    model.to(device)
    ours = adamw(model.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.01)
    return [
        _measured(
            device,
            f"step {size.name}, camera",
            stepper(
                lambda: model(data.latents_BFCHW, data.time_BF, data.text_BTD, data.camera),
                data.target_BFCHW,
                ours,
            ),
            stepper(
                lambda: library_forward(size, twin, data, shared=False), data.target_BFCHW, theirs
            ),
            "diffusers WanTransformer3DModel",
            size.camera_target,
        )
    ]


def forcing_rows(size: Size, device: torch.device) -> list[Ratio]:
    """The teacher-forced step, tiles by FlexAttention where the device has it."""
    size = replace(size, frames=forcing.FRAMES)
    model, data = our_model(size).to(device), _moved(size, device)
    optimizer = adamw(model.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    noisy, time_BF = data.latents_BFCHW, data.time_BF
    clean = noisy.flip(1)
    both, times = torch.cat([clean, noisy], 1), torch.cat([torch.zeros_like(time_BF), time_BF], 1)
    grid = model.grid(noisy)
    window = forcing.WINDOW
    tokens = window.chunk_frames * grid[1] * grid[2]
    mask = forcing.dense_mask(window, size.frames, tokens).to(device)

    def layout(flex: bool) -> ForcedLayout:
        return forced_layout(
            CleanContext(latents_BFCHW=clean, sigma_BF=torch.zeros_like(time_BF), shared=False),
            window=window,
            grid=grid,
            head_dim=size.dims.head_dim,
            camera=data.camera,
            flex=flex,
        )

    def forced() -> Tensor:
        return model(both, times, data.text_BTD, layout=layout(True))

    def dense() -> Tensor:
        return model(both, times, data.text_BTD, layout=forcing.DenseLayout(layout(False), mask))

    def plain() -> Tensor:
        return model(noisy, time_BF, data.text_BTD, data.camera)

    with torch.no_grad():
        print(f"teacher forcing: {float((forced() - dense()).abs().max()):.1e} off the dense mask")
    name = f"teacher-forced step {size.name}, {size.frames} latents"
    ours = stepper(forced, data.target_BFCHW, optimizer)
    return [
        _measured(
            device,
            name,
            ours,
            stepper(plain, data.target_BFCHW, optimizer),
            "our bidirectional step, half the tokens",
            2.3,
        ),
        _measured(
            device,
            name,
            ours,
            stepper(dense, data.target_BFCHW, optimizer),
            "the same step under a dense mask",
            1 / 1.5,
        ),
    ]


def rollout_rows(device: torch.device) -> list[Ratio]:
    """Latency along the way, and against the copied cache and recomputation."""
    ours = DeviceRollout(device)
    early, late = ours.cache_at(rollout.WINDOW + 1), ours.cache_at(32)
    if early.nbytes != late.nbytes:
        raise RuntimeError(f"buffers grow along the rollout: {early.nbytes} to {late.nbytes} bytes")
    copied, ring = rollout.CopiedRollout(ours), ours.cache_at(rollout.WINDOW)
    for _ in range(rollout.WINDOW):
        copied.chunk()
    at_16, latents, part = ours.cache_at(15), ours.latents(15), ours.conditions(15, 16)
    return [
        _measured(
            device,
            "rollout, chunk 32",
            lambda: ours.chunk(late),
            lambda: ours.chunk(early),
            f"chunk {rollout.WINDOW + 1}",
            1.08,
        ),
        _measured(
            device,
            "rollout, one chunk with a full window",
            lambda: ours.chunk(ring),
            copied.chunk,
            "self-forcing cache, copied",
            1 / 1.1,
        ),
        _measured(
            device,
            "rollout, one call at chunk 16",
            lambda: ours.call(at_16, latents, part),
            lambda: ours.recomputed(15),
            "recompute the prefix",
            1 / 15,
        ),
    ]


def _measured(
    device: torch.device,
    name: str,
    ours: Callable[[], object],
    anchor: Callable[[], object],
    anchor_name: str,
    target: float,
) -> Ratio:
    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return measure(
        name,
        ours,
        anchor,
        anchor_name=anchor_name,
        target=target,
        rounds=ROUNDS,
        warmup=2,
        clock=clock,
    )


def _moved(size: Size, device: torch.device) -> Inputs:
    data = inputs(size)
    camera = data.camera
    assert camera is not None
    moved = CameraMatrices(
        **{name: getattr(camera, name).to(device) for name in CameraMatrices.__dataclass_fields__}
    )
    return replace(
        data,
        latents_BFCHW=data.latents_BFCHW.to(device),
        time_BF=data.time_BF.to(device),
        text_BTD=data.text_BTD.to(device),
        target_BFCHW=data.target_BFCHW.to(device),
        camera=moved,
    )
