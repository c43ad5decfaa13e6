"""What causal attention keeps between calls: keys and values of clean frames.

`CleanContext` belongs to one training sequence, `ChunkCache` to one rollout. Neither copies what it
keeps.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from solarwm.nn.chunks import ChunkWindow


@dataclass(slots=True, kw_only=True)
class CleanContext:
    """The clean half of a teacher-forced sequence and, once run, its keys and values a layer."""

    latents_BFCHW: Tensor
    sigma_BF: Tensor
    """Noise level of the clean half, usually 0."""
    keys: list[Tensor] = field(default_factory=list)
    """A layer's keys as attention takes them (normed, rotated, seen by the camera), detached."""
    values: list[Tensor] = field(default_factory=list)

    @property
    def filled(self) -> bool:
        """Whether a forward has run the clean half."""
        return bool(self.keys)

    def rows(self, index_I: Tensor) -> CleanContext:
        """The context of the samples `index`, in that order; samples may repeat."""
        return CleanContext(
            latents_BFCHW=self.latents_BFCHW[index_I],
            sigma_BF=self.sigma_BF[index_I],
            keys=[key[index_I] for key in self.keys],
            values=[value[index_I] for value in self.values],
        )


class ChunkCache:
    """Raw keys and values (normed, not rotated) of the committed frames a rollout still sees.

    A ring: a new chunk takes the place of the one that left the window; kept frames never move.
    Positions and cameras are applied when a window is used, once a chunk, not once a call.
    """

    def __init__(self, *, window: ChunkWindow, batch: int, max_frames: int | None) -> None:
        self.window = window
        self.batch = batch
        self.max_frames = max_frames
        self.position = 0

    @property
    def visible_frames(self) -> tuple[int, ...]:
        """Global indices of the committed frames that the next chunk sees, ascending."""
        chunk = self.window.chunk_frames
        current = self.position // chunk
        prior = self.window.prior_chunks
        first = 0 if prior is None else max(0, current - prior)
        sinks = range(min(self.window.sink_chunks, first))
        chunks = [*sinks, *range(first, current)]
        return tuple(c * chunk + i for c in chunks for i in range(chunk))

    def slots(self, frames: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Temporal positions of the visible frames and of the `frames` that come next."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget every committed frame."""
        self.position = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers; constant once the window is full."""
        return 0

    @property
    def device(self) -> torch.device:
        """Where the buffers are."""
        raise NotImplementedError
