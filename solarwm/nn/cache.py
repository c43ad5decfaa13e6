"""What causal attention keeps between calls: keys and values of clean frames.

`CleanContext` belongs to one training sequence, `ChunkCache` to one rollout. Neither copies what it
keeps.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, P places of frames
in a buffer, S tokens of a frame, D width of all heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from solarwm.nn.chunks import ChunkWindow


@dataclass(slots=True, kw_only=True)
class CleanContext:
    """The clean half of a teacher-forced sequence and, once run, its keys and values a layer."""

    latents_BFCHW: Tensor
    sigma_BF: Tensor
    """Noise level of the clean half, usually 0."""
    shared: bool = True
    """Keep keys and values for later forwards."""
    keys: list[Tensor] = field(default_factory=list)
    """A layer's keys as attention takes them (normed, rotated, seen by the camera), detached."""
    values: list[Tensor] = field(default_factory=list)

    @property
    def filled(self) -> bool:
        """Whether a forward has run the clean half and kept it."""
        return bool(self.keys)

    def keep(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Keep a layer's keys and values if nothing of this layer is kept yet."""
        if self.shared and len(self.keys) == layer:
            self.keys.append(key.detach().clone())
            self.values.append(value.detach().clone())

    def rows(self, index_I: Tensor) -> CleanContext:
        """The context of the samples `index`, in that order; samples may repeat."""
        return CleanContext(
            latents_BFCHW=self.latents_BFCHW[index_I],
            sigma_BF=self.sigma_BF[index_I],
            shared=self.shared,
            keys=[key[index_I] for key in self.keys],
            values=[value[index_I] for value in self.values],
        )


@dataclass(slots=True, kw_only=True)
class LayerBuffers:
    """Buffers [B, P S, D] of one layer."""

    raw_key: Tensor
    """Normed, not rotated."""
    raw_value: Tensor
    ready_key: Tensor
    """As attention takes them for the present window."""
    ready_value: Tensor
    """`raw_value` itself where there is no camera."""


class ChunkCache:
    """Raw keys and values of the committed frames a rollout still sees.

    A ring of chunks behind the sinks: a new chunk takes the place of the one that left the window;
    kept frames never move. The chunk being denoised lies in its future place, so that attention
    reads one slice. Positions and cameras are applied once a window, not once a call.
    """

    def __init__(self, *, window: ChunkWindow, max_frames: int | None = None) -> None:
        if window.prior_chunks is None and max_frames is None:
            raise ValueError("a cache that keeps everything must know the most frames")
        self.window = window
        self.position = 0
        """Latent frames committed so far: the index of the next frame."""
        if window.prior_chunks is None:
            self._ring = window.chunks(max_frames or 0)
        else:
            self._ring = window.prior_chunks + 1
        self._layers: dict[int, LayerBuffers] = {}
        self._viewmats_BP44: Tensor | None = None
        self._intrinsics_BP33: Tensor | None = None
        self._ready: tuple[object, ...] | None = None
        self._remembered: tuple[int, Tensor | None, tuple[Any, ...], Any] | None = None
        self._text: Tensor | None = None
        self._text_memory: list[tuple[Tensor, Tensor]] = []

    @property
    def places(self) -> int:
        """Frames the buffers hold."""
        return (self.window.sink_chunks + self._ring) * self.window.chunk_frames

    @property
    def visible_frames(self) -> tuple[int, ...]:
        """Indices of the committed frames that the next chunk sees, ascending."""
        size = self.window.chunk_frames
        seen = self.window.clean_history(self.position // size)
        return tuple(chunk * size + i for chunk in seen for i in range(size))

    def next_frames(self) -> tuple[int, ...]:
        """Indices of the frames of the next chunk."""
        return tuple(range(self.position, self.position + self.window.chunk_frames))

    def place(self, frame: int) -> int:
        """Where in the buffers a frame lies."""
        size = self.window.chunk_frames
        chunk, rest = divmod(frame, size)
        if chunk >= self.window.sink_chunks:
            sinks = self.window.sink_chunks
            chunk = sinks + (chunk - sinks) % self._ring
        return chunk * size + rest

    def slots(self) -> dict[int, int]:
        """Temporal position of every visible frame and of the next chunk's, by frame index."""
        window, visible, coming = self.window, self.visible_frames, self.next_frames()
        if not window.aligned:
            return {frame: slot for slot, frame in enumerate((*visible, *coming))}
        last = coming[-1]
        back = 0 if window.slot_frames is None else max(0, last - (window.slot_frames - 1))
        sinks = window.sink_frames
        return {frame: frame if frame < sinks else frame - back for frame in (*visible, *coming)}

    def base_frame(self) -> int:
        """The frame that cameras of this window are seen from: its oldest one behind the sinks."""
        sinks = self.window.sink_frames
        behind = [frame for frame in self.visible_frames if frame >= sinks]
        return behind[0] if behind else self.position

    def clear(self) -> None:
        """Forget every committed frame and the text; the buffers stay."""
        self.position = 0
        self._ready = None
        self._remembered = None
        self._text = None
        self._text_memory = []

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; constant after the first chunk."""
        buffers = {
            id(tensor): tensor
            for layer in self._layers.values()
            for tensor in (layer.raw_key, layer.raw_value, layer.ready_key, layer.ready_value)
        }
        return sum(tensor.nbytes for tensor in buffers.values())

    def layer(self, index: int, like_BLD: Tensor, *, camera: bool) -> LayerBuffers:
        """The buffers of a layer, made on first use for chunks like `like`."""
        buffers = self._layers.get(index)
        if buffers is None:
            batch, tokens, width = like_BLD.shape
            length = tokens // self.window.chunk_frames * self.places

            def empty() -> Tensor:
                return like_BLD.new_zeros(batch, length, width)

            raw_value = empty()
            buffers = LayerBuffers(
                raw_key=empty(),
                raw_value=raw_value,
                ready_key=empty(),
                ready_value=empty() if camera else raw_value,
            )
            self._layers[index] = buffers
        return buffers

    def committed(self, layer: int) -> tuple[Tensor, Tensor]:
        """Raw keys and values [B, frames S, D] of the committed frames still kept, oldest first."""
        buffers = self._layers[layer]
        size = self.window.chunk_frames
        chunks = self.position // size
        sinks = range(min(self.window.sink_chunks, chunks))
        kept = (*sinks, *range(max(len(sinks), chunks - self._ring), chunks))
        frames = [chunk * size + i for chunk in kept for i in range(size)]
        tokens = buffers.raw_key.shape[1] // self.places
        raw = (buffers.raw_key, buffers.raw_value)
        key, value = (buffer.unflatten(1, (-1, tokens)) for buffer in raw)
        index = torch.tensor([self.place(frame) for frame in frames], device=key.device)
        return key[:, index].flatten(1, 2), value[:, index].flatten(1, 2)

    def see(self, frames: tuple[int, ...], viewmats_BF44: Tensor, intrinsics_BF33: Tensor) -> None:
        """Lay the cameras of `frames` into their places."""
        if self._viewmats_BP44 is None or self._intrinsics_BP33 is None:
            batch = viewmats_BF44.shape[0]
            eye = torch.eye(4, device=viewmats_BF44.device)
            self._viewmats_BP44 = eye.repeat(batch, self.places, 1, 1)
            self._intrinsics_BP33 = intrinsics_BF33[:, :1].float().repeat(1, self.places, 1, 1)
        for index, frame in enumerate(frames):
            self._viewmats_BP44[:, self.place(frame)] = viewmats_BF44[:, index].float()
            self._intrinsics_BP33[:, self.place(frame)] = intrinsics_BF33[:, index].float()

    def cameras(self, count: int) -> tuple[Tensor, Tensor]:
        """Viewmats and intrinsics of the first `count` places; some must have been seen."""
        assert self._viewmats_BP44 is not None
        assert self._intrinsics_BP33 is not None
        return self._viewmats_BP44[:, :count], self._intrinsics_BP33[:, :count]

    def remember(self, viewmats_BF44: Tensor | None, window: Any) -> None:
        """Keep what was computed for the next chunk under these viewmats."""
        self._remembered = (self.position, viewmats_BF44, _state(viewmats_BF44), window)

    def recall(self, viewmats_BF44: Tensor | None) -> Any:
        """What was kept for this position and this piece of memory, unchanged since; else None."""
        if self._remembered is None:
            return None
        position, _, state, window = self._remembered
        return window if (position, state) == (self.position, _state(viewmats_BF44)) else None

    def is_ready(self, key: tuple[object, ...]) -> bool:
        """Whether kept frames were last made ready under the same positions and cameras."""
        return self._ready == key

    def made_ready(self, key: tuple[object, ...] | None) -> None:
        """Note under which positions and cameras the kept frames are ready; None: not at all."""
        self._ready = key

    def text_memory(self, text_BTD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cross-attention keys and values a layer of this very text tensor; empty at first."""
        if self._text is not text_BTD:
            self._text = text_BTD
            self._text_memory = []
        return self._text_memory


def _state(tensor: Tensor | None) -> tuple[Any, ...]:
    """Names a piece of memory and how often it was written; slices of one tensor share it."""
    if tensor is None:
        return ()
    version = 0 if tensor.is_inference() else tensor._version
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), version)
