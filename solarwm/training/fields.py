"""A module over one batch, as the objectives ask for it: in one layout of the backbone.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, I chosen samples,
T text tokens, D text width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from solarwm.backbones.seam import Backbone
from solarwm.data.tensors import LatentBatch


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
