"""How the tokens of one forward see each other: what self-attention does between projections and output.

A layout gets projected queries, keys and values of a layer, norms and rotates them, shows them the
cameras, attends and undoes the camera on the output. Where a clip lies on several ranks,
`nn/sequence.py` exchanges frames for heads around it, between the norm (over all heads) and the
rotation (over all tokens).

Shapes: B batch, F frames of the forward, L tokens of the forward, D width of all heads, P rotated
pairs of a head, H heads, W width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from solarwm.nn.attention import Pairs, attend, attend_chunks
from solarwm.nn.cache import ChunkCache, CleanContext
from solarwm.nn.camera_attention import CameraMatrices, camera_matrices, rebased, transform
from solarwm.nn.chunks import ChunkWindow
from solarwm.nn.norms import norm_rotate, rms_norm, rotated
from solarwm.nn.rope import cached_table, turned


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """Queries, keys and values of one layer [B,L,D] with what normalises them; without weights they
    are normed already."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_weight: Tensor | None
    key_weight: Tensor | None
    eps: float
    num_heads: int

    def heads(self, x_BLD: Tensor) -> Tensor:
        """[B,L,H,W]."""
        return x_BLD.unflatten(-1, (self.num_heads, -1))

    def normed_query(self) -> Tensor:
        """Queries after the norm, not rotated."""
        return _normed(self.query, self.query_weight, self.eps)

    def normed_key(self) -> Tensor:
        """Keys after the norm, not rotated."""
        return _normed(self.key, self.key_weight, self.eps)

    def turned_query(self, rotation_LP: Tensor) -> Tensor:
        """Queries after norm and rotation."""
        return _turned(self.query, self.query_weight, self.eps, rotation_LP)

    def turned_key(self, rotation_LP: Tensor) -> Tensor:
        """Keys after norm and rotation."""
        return _turned(self.key, self.key_weight, self.eps, rotation_LP)


class Layout(Protocol):
    """One way the tokens of a forward see each other."""

    @property
    def out_frames(self) -> int:
        """Last frames of the forward that a velocity is wanted of; 0 = none."""
        ...

    @property
    def text_memory(self) -> list[tuple[Tensor, Tensor]] | None:
        """Cross-attention keys and values a layer, filled on first use; None = keep none."""
        ...

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor | None:
        """Attention output [B,L,D] before the output projection, camera undone.

        In the last layer only the tokens of `out_frames`; None when there are none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FullLayout:
    """Every token sees every token."""

    frames: int
    rotation_LP: Tensor
    camera: CameraMatrices | None
    text_memory: None = None

    @property
    def out_frames(self) -> int:
        """All frames."""
        return self.frames

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor:
        """Attention output [B,L,D]."""
        del layer, last
        query, key, value = _seen(projected, self.rotation_LP, self.camera)
        return _unseen(attend(query, key, value), self.camera)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedLayout:
    """`[clean | noisy]` in one forward, or the noisy half against kept clean keys and values."""

    noisy_frames: int
    chunk_tokens: int
    pairs: Pairs
    """Of the query chunks of this forward; keys are the clean chunks, then the noisy ones."""
    rotation_LP: Tensor
    camera: CameraMatrices | None
    context: CleanContext
    joint: bool
    """This forward runs the clean half too."""
    flex: bool
    text_memory: None = None

    @property
    def out_frames(self) -> int:
        """The noisy half."""
        return self.noisy_frames

    def seen(self, projected: Projected) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of this forward as attention takes them, [B,L,H,W]."""
        return _seen(projected, self.rotation_LP, self.camera)

    def unseen(self, out_BLHW: Tensor, *, last: bool) -> Tensor:
        """[B,L,D] with the camera undone; in the last layer `out` is the noisy half."""
        camera = self.camera
        if camera is not None and last:
            camera = camera.frames(camera.num_frames - self.noisy_frames, camera.num_frames)
        return _unseen(out_BLHW, camera)

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor:
        """Attention output of both halves, in the last layer of the noisy half."""
        query, key, value = self.seen(projected)
        pairs, keys, values = self.pairs, [key], [value]
        if self.joint:
            half = key.shape[1] // 2
            self.context.keep(layer, key[:, :half], value[:, :half])
            if last:
                query = query[:, half:]
                pairs = pairs[len(pairs) // 2 :]
        else:
            keys = [self.context.keys[layer], key]
            values = [self.context.values[layer], value]
        out = attend_chunks(
            query, keys, values, pairs, chunk_tokens=self.chunk_tokens, flex=self.flex
        )
        return self.unseen(out, last=last)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLayout:
    """One chunk against the window of a rollout."""

    cache: ChunkCache
    frame_tokens: int
    rotation_LP: Tensor
    """Of the frames in the first places of the buffers, this chunk's among them."""
    camera: CameraMatrices | None
    """Of the same frames."""
    key: tuple[object, ...]
    """Names the positions and cameras of this window."""
    refresh: bool
    """Kept frames must be rotated and seen anew: the window moved."""
    commit: bool
    text_memory: list[tuple[Tensor, Tensor]]

    @property
    def out_frames(self) -> int:
        """This chunk, or nothing where it is only written."""
        return 0 if self.commit else self.cache.window.chunk_frames

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor | None:
        """Attention output of the chunk; in the last layer of a commit only keys are written."""
        p, cache, camera = projected, self.cache, self.camera
        frames = cache.window.chunk_frames
        place = cache.place(cache.position)
        begin, end = place * self.frame_tokens, (place + frames) * self.frame_tokens
        used = self.rotation_LP.shape[0]
        here = self.rotation_LP[begin:end]
        mine = camera.frames(place, place + frames) if camera else None
        buffers = cache.layer(layer, p.key, camera=camera is not None)
        if self.commit:
            raw_key = p.normed_key()
            buffers.raw_key[:, begin:end] = raw_key
            buffers.raw_value[:, begin:end] = p.value
            key = turned(raw_key, here)
        else:
            key = p.turned_key(here)
        if self.refresh:
            kept = p.heads(turned(buffers.raw_key[:, :used], self.rotation_LP))
            buffers.ready_key[:, :used] = _key_seen(kept, camera).flatten(2)
            if camera is not None:
                value = transform(p.heads(buffers.raw_value[:, :used]), camera.key_BFGG)
                buffers.ready_value[:, :used] = value.flatten(2)
        buffers.ready_key[:, begin:end] = _key_seen(p.heads(key), mine).flatten(2)
        buffers.ready_value[:, begin:end] = _key_seen(p.heads(p.value), mine).flatten(2)
        if self.commit and last:
            return None
        query = p.heads(p.turned_query(here))
        if mine is not None:
            query = transform(query, mine.query_BFGG)
        seen_key = p.heads(buffers.ready_key[:, :used])
        seen_value = p.heads(buffers.ready_value[:, :used])
        return _unseen(attend(query, seen_key, seen_value), mine)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLayout:
    """Several finished chunks at once into an empty cache, each seeing its window."""

    cache: ChunkCache
    chunk_tokens: int
    pairs: Pairs
    rotation_LP: Tensor
    camera: CameraMatrices | None
    flex: bool
    out_frames: int = 0
    text_memory: None = None

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor | None:
        """Attention output of all chunks; in the last layer only keys are written."""
        p = projected
        size = self.chunk_tokens
        first = p.key[:, :size]
        buffers = self.cache.layer(layer, first, camera=self.camera is not None)
        raw_key = p.normed_key()
        length = raw_key.shape[1]
        buffers.raw_key[:, :length] = raw_key
        buffers.raw_value[:, :length] = p.value
        if last:
            return None
        query, key, value = _seen(p, self.rotation_LP, self.camera)
        out = attend_chunks(query, [key], [value], self.pairs, chunk_tokens=size, flex=self.flex)
        return _unseen(out, self.camera)


def full_layout(
    grid: tuple[int, int, int],
    *,
    head_dim: int,
    device: torch.device,
    camera: CameraMatrices | None,
) -> FullLayout:
    """The layout in which every token of `grid` (frames, rows, columns of tokens) sees every token."""
    frames, height, width = grid
    return FullLayout(
        frames=frames,
        rotation_LP=cached_table(tuple(range(frames)), height, width, head_dim, device),
        camera=camera,
    )


def forced_layout(
    context: CleanContext,
    *,
    window: ChunkWindow,
    grid: tuple[int, int, int],
    head_dim: int,
    camera: CameraMatrices | None,
    flex: bool,
) -> ForcedLayout:
    """The layout of a noisy half of `grid` (frames, rows, columns of tokens) with this context."""
    frames, height, width = grid
    chunks = window.chunks(frames)
    joint = not context.filled
    pairs = window.forced_pairs(chunks)
    slots = tuple(range(frames))
    device = context.latents_BFCHW.device
    return ForcedLayout(
        noisy_frames=frames,
        chunk_tokens=window.chunk_frames * height * width,
        pairs=pairs if joint else pairs[chunks:],
        rotation_LP=cached_table(slots * 2 if joint else slots, height, width, head_dim, device),
        camera=camera.twice() if camera and joint else camera,
        context=context,
        joint=joint,
        flex=flex,
    )


def cached_layout(
    cache: ChunkCache,
    *,
    grid: tuple[int, int, int],
    head_dim: int,
    device: torch.device,
    cameras: tuple[Tensor, Tensor] | None,
    rebase: bool,
    text_BTD: Tensor,
    commit: bool,
) -> CachedLayout:
    """The layout of the next chunk of a rollout.

    `cameras` are viewmats [B,F,4,4] and intrinsics [B,F,3,3] of its frames, all chunks in one
    world; `rebase` sees them from the window's oldest frame.
    """
    frames, height, width = grid
    if frames != cache.window.chunk_frames:
        raise ValueError(
            f"a rollout goes chunk by chunk of {cache.window.chunk_frames} latent frames, not {frames}"
        )
    view = cameras[0] if cameras else None
    window = cache.recall(view)
    if window is None:
        window = _window(cache, grid, head_dim, device, cameras, rebase=rebase)
        cache.remember(view, window)
    rotation, camera, key = window
    refresh = bool(cache.visible_frames) and not cache.is_ready(key)
    cache.made_ready(None)
    return CachedLayout(
        cache=cache,
        frame_tokens=height * width,
        rotation_LP=rotation,
        camera=camera,
        key=key,
        refresh=refresh,
        commit=commit,
        text_memory=cache.text_memory(text_BTD),
    )


Window = tuple[Tensor, CameraMatrices | None, tuple[object, ...]]
"""Rotations and cameras of the first places of a cache, and what names them."""


def _window(
    cache: ChunkCache,
    grid: tuple[int, int, int],
    head_dim: int,
    device: torch.device,
    cameras: tuple[Tensor, Tensor] | None,
    *,
    rebase: bool,
) -> Window:
    slots = cache.slots()
    by_place = {cache.place(frame): slot for frame, slot in slots.items()}
    used = max(by_place) + 1
    # A place inside that holds no visible frame is this chunk's own; all others are visible.
    positions = tuple(by_place[place] for place in range(used))
    camera, base = None, cache.base_frame()
    if cameras is not None:
        cache.see(cache.next_frames(), *cameras)
        view, intrinsics = cache.cameras(used)
        if rebase:
            view = rebased(view, view[:, cache.place(base)])
        camera = camera_matrices(view, intrinsics)
    shifts = {slot - frame for frame, slot in slots.items()}
    key = (tuple(sorted(shifts)), base if rebase and cameras is not None else 0)
    return cached_table(positions, *grid[1:], head_dim, device), camera, key


def history_layout(
    cache: ChunkCache,
    *,
    grid: tuple[int, int, int],
    head_dim: int,
    device: torch.device,
    cameras: tuple[Tensor, Tensor] | None,
    rebase: bool,
    flex: bool,
) -> HistoryLayout:
    """The layout of several finished chunks at the start of a cache.

    Raises `ValueError` where something is committed already or more comes than the cache holds.
    """
    frames, height, width = grid
    chunks = cache.window.chunks(frames)
    if cache.position or frames > cache.places:
        raise ValueError(
            f"{frames} latent frames at once go into an empty cache of at least as many; this one "
            f"holds {cache.position} of {cache.places}"
        )
    slots = tuple(range(frames))
    camera = None
    if cameras is not None:
        cache.see(slots, *cameras)
        view, intrinsics = cameras
        camera = camera_matrices(rebased(view, view[:, 0]) if rebase else view, intrinsics)
    cache.made_ready(None)
    return HistoryLayout(
        cache=cache,
        chunk_tokens=cache.window.chunk_frames * height * width,
        pairs=tuple(cache.window.clean_of_clean(chunk) for chunk in range(chunks)),
        rotation_LP=cached_table(slots, height, width, head_dim, device),
        camera=camera,
        flex=flex,
    )


def _seen(
    projected: Projected, rotation_LP: Tensor, camera: CameraMatrices | None
) -> tuple[Tensor, Tensor, Tensor]:
    p = projected
    query = p.heads(p.turned_query(rotation_LP))
    key = p.heads(p.turned_key(rotation_LP))
    value = p.heads(p.value)
    if camera is None:
        return query, key, value
    return (
        transform(query, camera.query_BFGG),
        transform(key, camera.key_BFGG),
        transform(value, camera.key_BFGG),
    )


def _normed(x_BLD: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return x_BLD if weight is None else rms_norm(x_BLD, weight, eps)


def _turned(x_BLD: Tensor, weight: Tensor | None, eps: float, rotation_LP: Tensor) -> Tensor:
    if weight is None:
        return rotated(x_BLD, rotation_LP)
    return norm_rotate(x_BLD, weight, eps, rotation_LP)


def _key_seen(key_BLHW: Tensor, camera: CameraMatrices | None) -> Tensor:
    return key_BLHW if camera is None else transform(key_BLHW, camera.key_BFGG)


def _unseen(out_BLHW: Tensor, camera: CameraMatrices | None) -> Tensor:
    out = out_BLHW if camera is None else transform(out_BLHW, camera.out_BFGG)
    return out.flatten(2)
