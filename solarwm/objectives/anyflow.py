"""AnyFlow v1.5: a map u(x, sigma, rho) from any noise level to any lower one, beside the velocity.

Along the path dx/dsigma = v the map obeys u + (sigma - rho) Du/Dsigma = v. The derivative is taken
by finite difference along the model's own velocity; guidance g is folded into the target:

    Y = g (eps - x0) + (1 - g) u(x, sigma, sigma | negative)
    R = (u + (sigma - rho) D - Y) / g,    loss = w(sigma) rescale(mean of R^2)

Only u(x, sigma, rho) carries gradient. Samples with rho = sigma are plain flow matching and need no
further forward. Losses of the other classes are scaled to the mean loss of that class, with their
gradient's direction kept: to that of the previous step (`corrected`), or of the same microbatch on
all ranks (`published`).

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, I samples with rho
< sigma.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solarwm.data.tensors import LatentBatch
from solarwm.nn.precision import widened
from solarwm.nn.random import keyed_generator
from solarwm.nn.time import shift
from solarwm.objectives.flow_matching import (
    draw_noise,
    family_spec,
    interpolate,
    training_shift,
    velocity_target,
)
from solarwm.objectives.schedules import NUM_TRAIN_TIMESTEPS, TimeTable, time_table
from solarwm.objectives.seam import ALONE, FlowMap, ObjectiveResult, Surroundings
from solarwm.objectives.time_pairs import (
    CLASS_NAMES,
    DIFFUSION,
    published_classes,
    rotated_classes,
    time_pairs,
)
from solarwm.routes.spec import BackboneSpec

REFERENCE = "diffusion_mean"
_FLOOR = 1e-5
_NARROWEST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardMap:
    """One microbatch on its way to a loss; every tensor but `map` is without gradient."""

    noisy_BFCHW: Tensor
    target_BFCHW: Tensor
    """The guided velocity the map has to agree with."""
    map_BFCHW: Tensor
    """u(x, sigma, rho), with gradient."""
    slope_BFCHW: Tensor
    """(sigma - rho) Du/Dsigma."""

    @property
    def prediction_BFCHW(self) -> Tensor:
        """u + (sigma - rho) Du/Dsigma: the velocity the map implies."""
        return self.map_BFCHW + self.slope_BFCHW


def difference_window(
    sigma_BF: Tensor, endpoint_BF: Tensor, half_width: float
) -> tuple[Tensor, Tensor]:
    """(sigma+, sigma-): `half_width` to both sides, inside [endpoint, 1]."""
    upper_BF = (sigma_BF + half_width).clamp(max=1.0)
    return upper_BF, torch.maximum(sigma_BF - half_width, endpoint_BF)


def adaptive_rescale(loss_B: Tensor, diffusion_B: Tensor, reference: float | None) -> Tensor:
    """Losses of other classes brought to `reference`, their gradients' direction kept, [B].

    Identity without a reference; a scale that is not finite is 1.
    """
    if reference is None or not math.isfinite(reference):
        return loss_B
    scale_B = reference / (loss_B.detach() + _FLOOR)
    scale_B = torch.where(torch.isfinite(scale_B), scale_B, torch.ones_like(scale_B))
    return torch.where(diffusion_B, loss_B, loss_B * scale_B)


def masked_mean_square(residual_BFCHW: Tensor, mask_BF: Tensor) -> Tensor:
    """Mean square of the supervised elements of each sample, [B]; masked ones are never squared."""
    mask = mask_BF[..., None, None, None].expand_as(residual_BFCHW)
    kept = torch.where(mask, residual_BFCHW, torch.zeros_like(residual_BFCHW))
    return kept.square().flatten(1).sum(-1) / mask.flatten(1).sum(-1).clamp(min=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyFlow:
    """The AnyFlow objective of one route; a frozen value without weights."""

    shift_k: float
    table: TimeTable
    """Where the loss weight of a noise level is looked up."""
    anchored: bool
    """The first latent frame is the image condition of every sample."""
    half_width: float
    """Half of the finite difference, in noise level."""
    guidance: float
    diffusion_share: float
    consistency_share: float
    global_batch: int
    numerics: str

    loss_names: tuple[str, ...] = (
        "anyflow",
        *(f"{name}_{part}" for name in CLASS_NAMES for part in ("raw", "rescaled", "count")),
    )

    def losses(
        self,
        velocity: FlowMap,
        batch: LatentBatch,
        *,
        seed: int,
        step: int,
        around: Surroundings = ALONE,
    ) -> ObjectiveResult:
        """One loss a sample. Draws: purposes `noise` and `time-pair`, keyed by slot."""
        clean = batch.latents_BFCHW
        classes_G = self.classes(step)
        class_B = classes_G[list(batch.slots)]
        t_B, r_B = time_pairs(*draw_pairs(batch.slots, seed=seed, step=step), class_B)
        sigma_BF, endpoint_BF, mask_BF = self.times(
            shift(t_B, self.shift_k), shift(r_B, self.shift_k), frames=clean.shape[1]
        )
        weight_B = self.weights(sigma_BF, mask_BF)
        class_B, sigma_BF, endpoint_BF, mask_BF, weight_B = (
            value.to(clean.device) for value in (class_B, sigma_BF, endpoint_BF, mask_BF, weight_B)
        )
        parts = self.forward_map(
            velocity,
            clean,
            draw_noise(clean, batch.slots, seed=seed, step=step),
            sigma_BF,
            endpoint_BF,
            mask_BF,
            in_step=bool((classes_G[list(around.peer_slots)] != DIFFUSION).any()),
        )
        residual = (parts.prediction_BFCHW - parts.target_BFCHW) / self.guidance
        raw_B = masked_mean_square(residual, mask_BF)
        rescaled_B = adaptive_rescale(
            raw_B, class_B == DIFFUSION, self._reference(raw_B, class_B, around)
        )
        loss_B = rescaled_B * weight_B
        return ObjectiveResult(
            per_sample_B=loss_B,
            metrics={
                "anyflow": loss_B.detach(),
                "sigma": sigma_BF[:, -1],
                "endpoint": endpoint_BF[:, -1],
                **_by_class(class_B, raw=raw_B.detach(), rescaled=rescaled_B.detach()),
            },
        )

    def classes(self, step: int) -> Tensor:
        """Class int8 [G] of every slot of the global batch of step `step`."""
        shares = self.diffusion_share, self.consistency_share
        if self.numerics == "published":
            return published_classes(self.global_batch, *shares)
        return rotated_classes(step, self.global_batch, *shares)

    def times(self, sigma_B: Tensor, endpoint_B: Tensor, *, frames: int) -> tuple[Tensor, ...]:
        """(sigma, endpoint, supervised) [B,F]: one pair for all frames, 0 where a frame is given."""
        sigma_BF, endpoint_BF = (
            value[:, None].expand(-1, frames).clone() for value in (sigma_B, endpoint_B)
        )
        mask_BF = torch.ones_like(sigma_BF, dtype=torch.bool)
        if self.anchored:
            sigma_BF[:, 0], endpoint_BF[:, 0], mask_BF[:, 0] = 0.0, 0.0, False
        return sigma_BF, endpoint_BF, mask_BF

    def weights(self, sigma_BF: Tensor, mask_BF: Tensor) -> Tensor:
        """Mean weight of the supervised frames, fp32 [B], from the nearest table entries."""
        index_BF = self.table.nearest(sigma_BF * NUM_TRAIN_TIMESTEPS)
        weight_BF = self.table.weights_N[index_BF] * mask_BF
        return weight_BF.sum(-1) / mask_BF.sum(-1).clamp(min=1)

    def forward_map(
        self,
        field: FlowMap,
        clean_BFCHW: Tensor,
        noise_BFCHW: Tensor,
        sigma_BF: Tensor,
        endpoint_BF: Tensor,
        mask_BF: Tensor,
        *,
        in_step: bool = False,
    ) -> ForwardMap:
        """All forwards of a microbatch: the one with gradient first, the others only where needed.

        `in_step`: some peer needs the derivative, so this rank makes its forwards too.
        """
        given = ~mask_BF[..., None, None, None]
        noisy = torch.where(given, clean_BFCHW, interpolate(clean_BFCHW, noise_BFCHW, sigma_BF))
        value = widened(field(noisy, sigma_BF, endpoint_BF))
        with torch.no_grad():
            target = velocity_target(clean_BFCHW, noise_BFCHW)
            if self.guidance != 1.0:
                empty = widened(field.unconditional(noisy, sigma_BF, sigma_BF))
                target = self.guidance * target + (1.0 - self.guidance) * empty
            slope = torch.zeros_like(target)
            index_I = (sigma_BF != endpoint_BF).any(1).nonzero().flatten()
            if len(index_I):
                slope[index_I] = self._slope(
                    field, clean_BFCHW, noisy, sigma_BF, endpoint_BF, mask_BF, index_I
                )
            elif in_step:
                first_I = torch.zeros(1, dtype=torch.int64, device=noisy.device)
                self._slope(field, clean_BFCHW, noisy, sigma_BF, endpoint_BF, mask_BF, first_I)
        return ForwardMap(
            noisy_BFCHW=noisy, target_BFCHW=target, map_BFCHW=value, slope_BFCHW=slope
        )

    def _slope(
        self,
        field: FlowMap,
        clean: Tensor,
        noisy: Tensor,
        sigma: Tensor,
        endpoint: Tensor,
        mask: Tensor,
        index_I: Tensor,
    ) -> Tensor:
        """(sigma - rho) Du/Dsigma of the samples `index`: three forwards, two of them in one."""
        clean, noisy, sigma_IF, endpoint_IF, mask = (
            value[index_I] for value in (clean, noisy, sigma, endpoint, mask)
        )
        tangent = widened(field.again(noisy, sigma_IF, sigma_IF, index_I))
        upper_IF, lower_IF = difference_window(sigma_IF, endpoint_IF, self.half_width)
        upper_IF, lower_IF = upper_IF * mask, lower_IF * mask
        sides = []
        for level_IF in (upper_IF, lower_IF):
            moved = widened(noisy) + (level_IF - sigma_IF)[..., None, None, None] * tangent
            sides.append(torch.where(mask[..., None, None, None], moved.to(noisy.dtype), clean))
        both = field.again(
            torch.cat(sides),
            torch.cat([upper_IF, lower_IF]),
            endpoint_IF.repeat(2, 1),
            index_I.repeat(2),
        )
        upper, lower = widened(both).chunk(2)
        width_IF = (upper_IF - lower_IF).clamp(min=_NARROWEST)
        factor_IF = (sigma_IF - endpoint_IF) / width_IF
        return factor_IF[..., None, None, None] * (upper - lower)

    def _reference(self, raw_B: Tensor, class_B: Tensor, around: Surroundings) -> float | None:
        if self.numerics != "published":
            return around.memory.get(REFERENCE)
        known_B = raw_B.detach().masked_fill(class_B != DIFFUSION, math.nan)
        gathered = known_B if around.gather is None else around.gather(known_B)
        finite = gathered[torch.isfinite(gathered)]
        return float(finite.mean()) if len(finite) else None

    def report(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        """The optimised loss, and raw and rescaled loss of every class that was there."""
        named = {"anyflow": sums["anyflow"] / samples}
        for name in CLASS_NAMES:
            count = sums[f"{name}_count"]
            for part in ("raw", "rescaled") if count else ():
                named[f"{name}_{part}"] = sums[f"{name}_{part}"] / count
        return named

    def remember(self, sums: Mapping[str, float], memory: Mapping[str, float]) -> dict[str, float]:
        """The mean raw diffusion loss of the last step that had one."""
        if not sums["diffusion_count"]:
            return dict(memory)
        return {REFERENCE: sums["diffusion_raw"] / sums["diffusion_count"]}


def draw_pairs(slots: tuple[int, ...], *, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Two uniform numbers a sample, fp32 [B] each, one keyed CPU generator a sample."""
    rows = [torch.rand(2, generator=keyed_generator(seed, "time-pair", step, s)) for s in slots]
    u1_B, u2_B = torch.stack(rows).unbind(1)
    return u1_B, u2_B


def _by_class(class_B: Tensor, *, raw: Tensor, rescaled: Tensor) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {}
    for number, name in enumerate(CLASS_NAMES):
        member_B = class_B == number
        zero_B = torch.zeros_like(raw)
        parts[f"{name}_raw"] = torch.where(member_B, raw, zero_B)
        parts[f"{name}_rescaled"] = torch.where(member_B, rescaled, zero_B)
        parts[f"{name}_count"] = member_B.to(raw.dtype)
    return parts


def create(config: Any, spec: BackboneSpec | None = None) -> AnyFlow:
    """The objective of a resolved run config; `spec` defaults to that of `config.model.family`."""
    spec = spec or family_spec(config.model.family)
    train = config.train
    shift_k = training_shift(config, spec)
    width = getattr(train, "anyflow_epsilon", None) or train.finite_difference_epsilon
    named = hasattr(train, "anyflow_diffusion_ratio")
    return AnyFlow(
        shift_k=shift_k,
        table=time_table(shift_k),
        anchored=spec.first_frame_anchored,
        half_width=float(width) / NUM_TRAIN_TIMESTEPS,
        guidance=float(getattr(train, "anyflow_fuse_guidance_scale", 1.0)),
        diffusion_share=train.anyflow_diffusion_ratio if named else train.diffusion_ratio,
        consistency_share=train.anyflow_consistency_ratio if named else train.consistency_ratio,
        global_batch=train.global_batch_size,
        numerics="published" if config.model.numerics == "published" else "corrected",
    )
