"""A causal model over one batch: chunk by chunk through a cache, or all chunks at once.

Shapes: B batch, F latent frames, f frames of a chunk, C latent channels, H W latent height and
width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from solarwm.backbones.seam import Backbone

DROP, DIAGONAL, CONSISTENCY = "drop", "keep_diagonal", "keep_consistency"
"""What becomes of the endpoint embedding of a flow map that goes on as a few-step student."""


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
            self.part(latents_BfCHW, start),
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
            self.part(clean_BfCHW, start),
            self._cache,
            sigma_BF=level_Bf if sigma else None,
        )

    @property
    def prior_chunks(self) -> int | None:
        """Finished chunks that a chunk sees; None = all of them."""
        return self._backbone.window.prior_chunks

    def anew(self, window_BFCHW: Tensor, start: int, *, sigma: float = 0.0) -> None:
        """Forget everything and make the finished frames `window`, those just before frame `start`,
        the history. No gradient."""
        self._cache.clear()
        if window_BFCHW.shape[1]:
            self.commit(window_BFCHW, start - window_BFCHW.shape[1], sigma=sigma)

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

    def part(self, latents_BfCHW: Tensor, start: int) -> Any:
        """The conditions of these frames, the first of which is frame `start` of the rollout."""
        return self._backbone.frames(self._conditions, start, start + latents_BfCHW.shape[1])

    def _endpoint(self, sigma_BF: Tensor) -> Tensor | None:
        if self._delta_policy == DROP:
            return None
        return sigma_BF if self._delta_policy == DIAGONAL else torch.zeros_like(sigma_BF)
