"""Flow matching: predict eps - x0 of a clip noised to one level, the first frame given as image.

    x = (1 - sigma) x0 + sigma eps,   loss = sum M w (v - (eps - x0))^2 / max(sum M, 1)

`corrected` numerics take sigma exactly and normalise every sample by itself; `published` looks both
sigma and weight up at the nearest table entry and divides by the mask of the whole local batch.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, N table entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solarwm.data.tensors import LatentBatch
from solarwm.errors.types import SolarError
from solarwm.nn.precision import widened
from solarwm.nn.random import keyed_generator
from solarwm.objectives.image_condition import keyed_drops
from solarwm.objectives.schedules import TimeTable, time_table
from solarwm.objectives.seam import ALONE, ObjectiveResult, Surroundings, Velocity, means
from solarwm.routes.spec import BackboneSpec

UNIFORM_PER_VIDEO = "uniform_per_video"
PER_BLOCK = "per_block"


def interpolate(clean_BFCHW: Tensor, noise_BFCHW: Tensor, sigma_BF: Tensor) -> Tensor:
    """(1 - sigma) x0 + sigma eps in fp32, back in the dtype of `clean`."""
    sigma = sigma_BF[..., None, None, None].float()
    mixed = (1 - sigma) * widened(clean_BFCHW) + sigma * widened(noise_BFCHW)
    return mixed.to(clean_BFCHW.dtype)


def velocity_target(clean_BFCHW: Tensor, noise_BFCHW: Tensor) -> Tensor:
    """eps - x0, subtracted in the latent dtype, then fp32."""
    return widened(noise_BFCHW - clean_BFCHW)


def clean_from_velocity(x_BFCHW: Tensor, velocity_BFCHW: Tensor, sigma_BF: Tensor) -> Tensor:
    """x0 = x - sigma v in float64, in the dtype of the velocity."""
    sigma = sigma_BF[..., None, None, None].double()
    return (x_BFCHW.double() - sigma * velocity_BFCHW.double()).to(velocity_BFCHW.dtype)


def squared_error(
    prediction_BFCHW: Tensor, target_BFCHW: Tensor, weight_BF: Tensor, mask_BF: Tensor
) -> tuple[Tensor, Tensor]:
    """(sum of M w d^2, sum of M) a sample, fp32 [B]; what is masked out is never squared."""
    mask = mask_BF[..., None, None, None].expand_as(prediction_BFCHW)
    difference = widened(prediction_BFCHW) - widened(target_BFCHW)
    difference = torch.where(mask, difference, torch.zeros_like(difference))
    error_BF = difference.square().flatten(2).sum(-1) * weight_BF.float()
    return error_BF.sum(-1), mask.flatten(1).sum(-1).float()


def corrected_loss(error_B: Tensor, count_B: Tensor) -> Tensor:
    """Every sample divided by its own supervised elements, [B]."""
    return error_B / count_B.clamp(min=1)


def published_loss(error_B: Tensor, count_B: Tensor) -> Tensor:
    """Every sample's share [B] of the published loss; their mean is sum M w d^2 / max(sum M, 1)."""
    return error_B * len(error_B) / count_B.sum().clamp(min=1)


def block_indices(raw_BF: Tensor, block: int) -> Tensor:
    """The first index of every block of frames, repeated in its block.

    Raises `ValueError` when the frames are no whole number of blocks.
    """
    frames = raw_BF.shape[1]
    if frames % block:
        raise ValueError(f"{frames} latent frames are not a whole number of blocks of {block}")
    return raw_BF[:, ::block].repeat_interleave(block, dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMatching:
    """The flow-matching objective of one route; a frozen value without weights."""

    table: TimeTable
    anchored: bool
    """The first latent frame is the image condition of every sample that is not dropped."""
    image_dropout: float
    timestep_mode: str
    block: int
    numerics: str

    loss_names: tuple[str, ...] = ("flow_matching",)

    def losses(
        self,
        velocity: Velocity,
        batch: LatentBatch,
        *,
        seed: int,
        step: int,
        around: Surroundings = ALONE,
    ) -> ObjectiveResult:
        """One loss a sample. Draws: purposes `noise`, `time` and `image-drop`, keyed by slot."""
        clean = batch.latents_BFCHW
        device = clean.device
        index_BF = self.draw_indices(clean.shape[1], batch.slots, seed=seed, step=step)
        conditioned_B = self._conditioned(batch.slots, seed=seed, step=step)
        anchor_BF = torch.zeros(index_BF.shape, dtype=torch.bool)
        anchor_BF[:, 0] = conditioned_B
        sigma_BF = self.table.sigmas_N[index_BF].masked_fill(anchor_BF, 0.0)
        weight_BF = self.table.weights_N[index_BF]
        noise = draw_noise(clean, batch.slots, seed=seed, step=step)
        anchor_BF, sigma_BF, weight_BF = (
            value.to(device) for value in (anchor_BF, sigma_BF, weight_BF)
        )
        noisy = interpolate(clean, noise, sigma_BF)
        noisy = torch.where(anchor_BF[..., None, None, None], clean, noisy)
        prediction = velocity(noisy, sigma_BF)
        error_B, count_B = squared_error(
            prediction, velocity_target(clean, noise), weight_BF, ~anchor_BF
        )
        reduce = published_loss if self.numerics == "published" else corrected_loss
        per_sample_B = reduce(error_B, count_B)
        return ObjectiveResult(
            per_sample_B=per_sample_B,
            metrics={
                "flow_matching": per_sample_B.detach(),
                "sigma": sigma_BF[:, -1],
                "image_dropped": (~conditioned_B).float()
                if self.anchored
                else sigma_BF.new_zeros(()),
            },
        )

    def report(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        """The mean loss."""
        return means(sums, samples)

    def remember(self, sums: Mapping[str, float], memory: Mapping[str, float]) -> dict[str, float]:
        """Nothing: steps do not depend on each other."""
        return {}

    def draw_indices(self, frames: int, slots: tuple[int, ...], *, seed: int, step: int) -> Tensor:
        """Table indices int64 [B,F]: one a sample, or one a block of frames."""
        size = len(self.table.sigmas_N)
        per_video = self.timestep_mode == UNIFORM_PER_VIDEO
        rows = [
            torch.randint(
                size,
                (1 if per_video else frames,),
                generator=keyed_generator(seed, "time", step, slot),
            )
            for slot in slots
        ]
        raw = torch.stack(rows)
        return raw.expand(-1, frames).clone() if per_video else block_indices(raw, self.block)

    def _conditioned(self, slots: tuple[int, ...], *, seed: int, step: int) -> Tensor:
        if not self.anchored:
            return torch.zeros(len(slots), dtype=torch.bool)
        return ~keyed_drops(self.image_dropout, seed=seed, step=step, slots=slots)


def draw_noise(
    clean_BFCHW: Tensor, slots: tuple[int, ...], *, seed: int, step: int, purpose: str = "noise"
) -> Tensor:
    """Standard normal like `clean`, one keyed CPU generator a sample."""
    rows = [
        torch.randn(clean_BFCHW.shape[1:], generator=keyed_generator(seed, purpose, step, slot))
        for slot in slots
    ]
    return torch.stack(rows).to(device=clean_BFCHW.device, dtype=clean_BFCHW.dtype)


def training_shift(config: Any, spec: BackboneSpec) -> float:
    """The timestep shift of a run: that of `model`, else the published one of the family."""
    shift_k = getattr(config.model, "timestep_shift", None) or spec.training_shift
    if shift_k is None:
        raise SolarError(
            "objective.no-shift",
            f"{spec.family} has no timestep shift to draw noise levels with",
            fixes=["--set model.timestep_shift=5.0"],
        )
    return float(shift_k)


def create(config: Any, spec: BackboneSpec | None = None) -> FlowMatching:
    """The objective of a resolved run config; `spec` defaults to that of `config.model.family`."""
    spec = spec or family_spec(config.model.family)
    shift_k = training_shift(config, spec)
    mode = config.train.timestep_mode or UNIFORM_PER_VIDEO
    numerics = getattr(config.model, "numerics", "auto")
    return FlowMatching(
        table=time_table(shift_k, int(config.train.num_train_timesteps or 1000)),
        anchored=spec.first_frame_anchored,
        image_dropout=float(config.train.i2v_image_condition_dropout or 0.0),
        timestep_mode=mode,
        block=spec.chunk_latents,
        numerics="published" if numerics == "published" else "corrected",
    )


def family_spec(family: str) -> BackboneSpec:
    """The spec of a family, from the route table."""
    from importlib import import_module

    from solarwm.routes.table import ROUTES

    for route in ROUTES:
        if route.family == family:
            module, name = route.backbone_spec.split(":")
            return getattr(import_module(module), name)
    raise ValueError(f"no route of family {family!r}")
