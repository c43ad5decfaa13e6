"""A module over one batch, as the objectives ask for it: in one layout of the backbone.

Shapes: B batch, F latent frames, f frames of a chunk, C latent channels, H W latent height and
width, I chosen samples, T text tokens, D text width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from solarwm.backbones.seam import Backbone
from solarwm.data.tensors import LatentBatch

DROP, DIAGONAL, CONSISTENCY = "drop", "keep_diagonal", "keep_consistency"
"""What becomes of the endpoint embedding of a flow map that goes on as a few-step student."""


class BidirectionalField:
    """The velocity with every frame seeing every frame."""

    def __init__(self, backbone: Backbone, module: nn.Module, batch: LatentBatch) -> None:
        self._backbone = backbone
        self._module = module
        self._conditions = backbone.conditions(batch)

    def __call__(self, latents_BFCHW: Tensor, sigma_BF: Tensor) -> Tensor:
        """Velocity, fp32."""
        return self._backbone.velocity(self._module, latents_BFCHW, sigma_BF, self._conditions)

    def unconditional(self, text_BTD: Tensor) -> BidirectionalField:
        """The same cameras under another prompt; one text serves every row."""
        other = object.__new__(BidirectionalField)
        other._backbone, other._module = self._backbone, self._module
        other._conditions = self._backbone.with_text(self._conditions, text_BTD)
        return other


class TeacherForcedField:
    """The velocity of noisy chunks given the clean chunks before them."""

    def __init__(self, backbone: Backbone, module: nn.Module, batch: LatentBatch) -> None:
        self._backbone = backbone
        self._module = module
        self._clean = batch.latents_BFCHW
        self._conditions = backbone.conditions(batch)

    def __call__(self, latents_BFCHW: Tensor, sigma_BF: Tensor) -> Tensor:
        """Velocity of the noisy half, with gradient through both halves, fp32."""
        return self._backbone.velocity(
            self._module,
            latents_BFCHW,
            sigma_BF,
            self._conditions,
            layout="teacher_forcing",
            context=self._backbone.clean_context(self._clean, shared=False),
        )


class TeacherForcedMap:
    """A flow map of noisy chunks given the clean chunks before them.

    The clean half is run by the first forward, which has the gradient; forwards without gradient
    reuse its keys and values. The negative prompt has a clean half of its own.
    """

    def __init__(
        self,
        backbone: Backbone,
        module: nn.Module,
        batch: LatentBatch,
        *,
        negative_1TD: Tensor | None,
        share_context: bool = True,
    ) -> None:
        self._backbone = backbone
        self._module = module
        self._clean = batch.latents_BFCHW
        self._conditions = backbone.conditions(batch)
        self._negative_1TD = negative_1TD
        self._context = backbone.clean_context(self._clean, shared=share_context)

    def __call__(self, latents_BFCHW: Tensor, sigma_BF: Tensor, endpoint_BF: Tensor, /) -> Tensor:
        """u(x, sigma, rho) of all samples with gradient; keeps the clean half's keys and values."""
        return self._velocity(latents_BFCHW, sigma_BF, endpoint_BF, self._conditions, self._context)

    def again(
        self, latents_IFCHW: Tensor, sigma_IF: Tensor, endpoint_IF: Tensor, index_I: Tensor
    ) -> Tensor:
        """u of the samples `index` on the kept clean half. No gradient."""
        return self._velocity(
            latents_IFCHW,
            sigma_IF,
            endpoint_IF,
            self._backbone.rows(self._conditions, index_I),
            self._context.rows(index_I),
        )

    def unconditional(self, latents_BFCHW: Tensor, sigma_BF: Tensor, endpoint_BF: Tensor) -> Tensor:
        """u of all samples under the negative prompt, with its own clean half. No gradient."""
        if self._negative_1TD is None:
            raise ValueError("guidance needs a negative prompt")
        text = self._negative_1TD.to(latents_BFCHW.device)
        return self._velocity(
            latents_BFCHW,
            sigma_BF,
            endpoint_BF,
            self._backbone.with_text(self._conditions, text),
            self._backbone.clean_context(self._clean, shared=False),
        )

    def _velocity(
        self, latents: Tensor, sigma: Tensor, endpoint: Tensor, conditions: Any, context: Any
    ) -> Tensor:
        return self._backbone.velocity(
            self._module,
            latents,
            sigma,
            conditions,
            layout="teacher_forcing",
            endpoint_BF=endpoint,
            context=context,
        )


class CausalField:
    """A causal model chunk by chunk through a cache, or all chunks at once: see
    `objectives.rollout.CausalStudent`."""

    def __init__(
        self,
        backbone: Backbone,
        module: nn.Module,
        conditions: Any,
        latents_BFCHW: Tensor,
        *,
        delta_policy: str = DROP,
    ) -> None:
        self._backbone = backbone
        self._module = module
        self._conditions = conditions
        self._cache = backbone.open_cache(latents_BFCHW)
        self._delta_policy = delta_policy

    def chunk(self, latents_BfCHW: Tensor, sigma_Bf: Tensor, start: int) -> Tensor:
        """Velocity of the frames from `start` on, given what was committed. No gradient."""
        return self.jump(latents_BfCHW, sigma_Bf, self._endpoint(sigma_Bf), start)

    def jump(
        self, latents_BfCHW: Tensor, sigma_Bf: Tensor, endpoint_Bf: Tensor | None, start: int
    ) -> Tensor:
        """The same with an endpoint, for flow maps. No gradient."""
        return self._backbone.velocity(
            self._module,
            latents_BfCHW,
            sigma_Bf,
            self._part(latents_BfCHW, start),
            layout="cached",
            endpoint_BF=endpoint_Bf,
            cache=self._cache,
        )

    def commit(self, clean_BfCHW: Tensor, start: int, *, sigma: float = 0.0) -> None:
        """Make finished frames history, at noise level `sigma`. No gradient."""
        level_Bf = torch.full(clean_BfCHW.shape[:2], sigma, device=clean_BfCHW.device)
        self._backbone.commit(
            self._module,
            clean_BfCHW,
            self._part(clean_BfCHW, start),
            self._cache,
            sigma_BF=level_Bf if sigma else None,
        )

    def replay(self, latents_BFCHW: Tensor, sigma_BF: Tensor, clean_BFCHW: Tensor) -> Tensor:
        """Velocity of all chunks at once; gradients reach the weights through both halves."""
        return self._backbone.velocity(
            self._module,
            latents_BFCHW,
            sigma_BF,
            self._conditions,
            layout="teacher_forcing",
            endpoint_BF=self._endpoint(sigma_BF),
            context=self._backbone.clean_context(clean_BFCHW, shared=False),
        )

    def _part(self, latents_BfCHW: Tensor, start: int) -> Any:
        return self._backbone.frames(self._conditions, start, start + latents_BfCHW.shape[1])

    def _endpoint(self, sigma_BF: Tensor) -> Tensor | None:
        if self._delta_policy == DROP:
            return None
        return sigma_BF if self._delta_policy == DIAGONAL else torch.zeros_like(sigma_BF)
