"""A causal rollout chunk by chunk: its cost along the way, and against two other ways of keeping history.

A chunk is four denoising calls and one commit, 4 layers 256 wide, 252 tokens, window of six chunks, with
cameras. `recompute the prefix` keeps nothing: every denoising call runs all clean chunks so far again.
`copied cache` is the self-forcing way: every call clones each layer's whole buffer of raw keys and
values, joins the chunk to it, rotates and turns the window; a commit is a whole forward and rolls the
buffer by copying. Keys of the text are kept by both.
Values of all ways are compared before any timing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.ratio import Ratio, measure
from benchmarks.step import SIZES, inputs
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.backbone import WanBackbone
from solarwm.backbones.wan22_core.conditions import WanConditions
from solarwm.nn.attention import attend
from solarwm.nn.cache import ChunkCache
from solarwm.nn.camera_attention import CameraMatrices, transform
from solarwm.nn.chunks import ChunkWindow
from solarwm.nn.layouts import Projected
from solarwm.nn.norms import rms_norm
from solarwm.nn.rope import cached_table, turned

CHUNK, CALLS, WINDOW = 3, 4, 6
TOLERANCE = 1e-4


class Rollout:
    """One model and one endless clip of it; every way of rolling out reads the same numbers."""

    def __init__(self) -> None:
        size = replace(SIZES[0], frames=CHUNK)
        profile = replace(SPEC.profiles["tiny"], dims=size.dims)
        window = ChunkWindow(
            chunk_frames=CHUNK, prior_chunks=WINDOW - 1, slot_frames=(WINDOW + 1) * CHUNK
        )
        self.size = size
        self.backbone = _backbone(profile, window)
        everything = replace(window, prior_chunks=None, slot_frames=None)
        self.naive = _backbone(profile, everything)
        self.module = self.backbone.build(device="cpu", seed=0)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(1)
            self.module.head.head.weight.normal_(std=0.02, generator=generator)  # type: ignore[union-attr]
        self.text = inputs(size).text_BTD
        self.sigma = torch.full((1, CHUNK), 0.5)

    def latents(self, chunk: int) -> Tensor:
        """Clean latents of a chunk."""
        shape = (1, CHUNK, 48, self.size.height, self.size.width)
        return torch.randn(shape, generator=torch.Generator().manual_seed(chunk))

    def conditions(self, start: int, stop: int) -> WanConditions:
        """Text and a slowly walking camera for the chunks start..stop-1."""
        frames = torch.arange(start * CHUNK, stop * CHUNK)
        view = torch.eye(4).repeat(1, len(frames), 1, 1)
        view[0, :, 2, 3] = 0.05 * frames
        lens = torch.tensor([[0.505, 0, 0.5], [0, 0.898, 0.5], [0, 0, 1]])
        return WanConditions(
            text_BTD=self.text,
            viewmats_BF44=view,
            intrinsics_BF33=lens.repeat(1, len(frames), 1, 1),
            camera=None,
        )

    @torch.no_grad()
    def chunk(self, cache: ChunkCache) -> Tensor:
        """Four calls and a commit of the next chunk; the last velocity."""
        index = cache.position // CHUNK
        latents, part = self.latents(index), self.conditions(index, index + 1)
        out = latents
        for _ in range(CALLS):
            out = self.call(cache, latents, part)
        self.backbone.commit(self.module, latents, part, cache)
        return out

    @torch.no_grad()
    def call(self, cache: ChunkCache, latents: Tensor, part: WanConditions) -> Tensor:
        """One denoising call."""
        return self.backbone.velocity(
            self.module, latents, self.sigma, part, layout="cached", cache=cache
        )

    def cache_at(self, chunk: int) -> ChunkCache:
        """A cache that has seen `chunk` chunks."""
        cache = self.backbone.open_cache(self.latents(0))
        for index in range(chunk):
            with torch.no_grad():
                self.backbone.commit(
                    self.module, self.latents(index), self.conditions(index, index + 1), cache
                )
        return cache

    @torch.no_grad()
    def recomputed(self, chunk: int) -> Tensor:
        """One denoising call of a chunk with all clean chunks before it run again."""
        whole = torch.cat([self.latents(index) for index in range(chunk + 1)], dim=1)
        cache = self.naive.open_cache(whole)
        past = whole[:, : chunk * CHUNK]
        if chunk:
            self.naive.commit(self.module, past, self.conditions(0, chunk), cache)
        return self.naive.velocity(
            self.module,
            whole[:, chunk * CHUNK :],
            self.sigma,
            self.conditions(chunk, chunk + 1),
            layout="cached",
            cache=cache,
        )


def _backbone(profile: Any, window: ChunkWindow) -> WanBackbone:
    return WanBackbone(
        SPEC, profile, translation_transform="linear", numerics="corrected", window=window
    )


@dataclass(slots=True, kw_only=True)
class CopiedLayout:
    """Self-forcing's cache: cloned on every call, rolled by copying on every commit, which is a
    whole forward."""

    frame_tokens: int
    slots: tuple[int, ...]
    grid: tuple[int, int]
    camera: CameraMatrices | None
    commit: bool
    buffers: dict[int, tuple[Tensor, Tensor]]
    text_memory: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def out_frames(self) -> int:
        """The chunk."""
        return CHUNK

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor | None:
        """Attention output of the chunk."""
        del last
        p, camera = projected, self.camera
        raw_key = rms_norm(p.key, p.key_weight, p.eps)
        key, value = raw_key, p.value
        if layer in self.buffers:
            kept = (buffer.clone() for buffer in self.buffers[layer])
            key, value = (
                torch.cat([old, new], dim=1)
                for old, new in zip(kept, (raw_key, p.value), strict=True)
            )
        if self.commit:
            limit = (WINDOW - 1) * CHUNK * self.frame_tokens
            self.buffers[layer] = (key[:, -limit:].clone(), value[:, -limit:].clone())
        table = cached_table(self.slots, *self.grid, key.shape[-1] // p.num_heads, key.device)
        query = rms_norm(p.query, p.query_weight, p.eps)
        here = p.key.shape[1]
        query = p.heads(turned(query, table[-here:]))
        key, value = p.heads(turned(key, table)), p.heads(value)
        assert camera is not None
        frames = camera.num_frames
        mine = camera.frames(frames - CHUNK, frames)
        out = attend(
            transform(query, mine.query_BFGG),
            transform(key, camera.key_BFGG),
            transform(value, camera.key_BFGG),
        )
        return transform(out, mine.out_BFGG).flatten(2)


class CopiedRollout:
    """The rollout over `CopiedLayout`."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self.buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self.text_memory: list[tuple[Tensor, Tensor]] = []
        self.position = 0

    @torch.no_grad()
    def chunk(self) -> Tensor:
        """Four calls and a commit of the next chunk; the last velocity."""
        latents = self.rollout.latents(self.position)
        out = latents
        for _ in range(CALLS):
            out = self._run(latents, self.rollout.sigma, commit=False)
        self._run(latents, torch.zeros_like(self.rollout.sigma), commit=True)
        self.position += 1
        return out

    def _run(self, latents: Tensor, sigma: Tensor, *, commit: bool) -> Tensor:
        from solarwm.nn.camera_attention import camera_matrices, rebased

        first = max(0, self.position - WINDOW + 1)
        last = (self.position + 1) * CHUNK - 1
        back = max(0, last - ((WINDOW + 1) * CHUNK - 1))
        seen = self.rollout.conditions(first, self.position + 1).cameras()
        assert seen is not None
        view, lens = seen
        height, width = self.rollout.size.height // 2, self.rollout.size.width // 2
        layout = CopiedLayout(
            frame_tokens=height * width,
            slots=tuple(frame - back for frame in range(first * CHUNK, last + 1)),
            grid=(height, width),
            camera=camera_matrices(rebased(view, view[:, 0]), lens),
            commit=commit,
            buffers=self.buffers,
            text_memory=self.text_memory,
        )
        return self.rollout.module(latents, sigma * 1000, self.rollout.text, layout=layout)


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """The ratios of a rollout; `quick` leaves out the one over 16 chunks."""
    rollout = Rollout()
    _compare(rollout)
    early, late = rollout.cache_at(WINDOW + 1), rollout.cache_at(32)
    grown = {early.nbytes, late.nbytes}
    if len(grown) != 1:
        raise RuntimeError(f"buffers grow along the rollout: {sorted(grown)} bytes")
    print(f"rollout buffers: {late.nbytes} bytes at chunk {WINDOW + 1} and at chunk 32")
    result = [
        measure(
            "rollout, chunk 32",
            lambda: rollout.chunk(late),
            lambda: rollout.chunk(early),
            anchor_name=f"chunk {WINDOW + 1}",
            target=1.08,
            rounds=2 * rounds,
            clock=time.process_time,
        )
    ]
    copied = CopiedRollout(rollout)
    for _ in range(WINDOW):
        copied.chunk()
    ring = rollout.cache_at(WINDOW)
    result.append(
        measure(
            "rollout, one chunk with a full window",
            lambda: rollout.chunk(ring),
            copied.chunk,
            anchor_name="self-forcing cache, copied",
            target=1 / 1.1,
            rounds=2 * rounds,
            clock=time.process_time,
        )
    )
    at_16 = rollout.cache_at(15)
    latents, part = rollout.latents(15), rollout.conditions(15, 16)
    result.append(
        measure(
            "rollout, one call at chunk 16",
            lambda: rollout.call(at_16, latents, part),
            lambda: rollout.recomputed(15),
            anchor_name="recompute the prefix",
            target=1 / 15,
            rounds=rounds,
            clock=time.process_time,
        )
    )
    if quick:
        return result

    def whole() -> None:
        cache = rollout.cache_at(0)
        for _ in range(16):
            rollout.chunk(cache)

    def naive() -> None:
        for chunk in range(16):
            for _ in range(CALLS):
                rollout.recomputed(chunk)

    result.append(
        measure(
            "rollout, 16 chunks",
            whole,
            naive,
            anchor_name="recompute the prefix",
            target=1 / 6,
            rounds=min(rounds, 3),
            clock=time.process_time,
        )
    )
    return result


def _compare(rollout: Rollout) -> None:
    """All ways give equal velocities: the copied cache at every chunk, recomputation while all fits."""
    copied, cache = CopiedRollout(rollout), rollout.cache_at(0)
    worst = 0.0
    for chunk in range(WINDOW + 3):
        ours = rollout.chunk(cache)
        others = [copied.chunk()]
        if chunk < WINDOW:
            others.append(rollout.recomputed(chunk))
        worst = max(worst, *(float((ours - other).abs().max()) for other in others))
    print(f"rollout: ways differ by {worst:.1e}")
    if worst > TOLERANCE:
        raise RuntimeError(f"the ways of rolling out differ by {worst}")
