"""Every route that runs gives one velocity on two ranks of a clip: ranks are threads, exchanges lists."""

from __future__ import annotations

import threading

import pytest
import torch

from solarwm.nn.sequence import FrameSplit
from tests.contract.test_backbone_contract import RUNNABLE, batch, layouts_of, tiny

SIZE = 2


class ThreadPeers:
    """One of several threads that exchange tensors through a shared table."""

    sp_size = SIZE

    def __init__(self, sp_rank: int, table: list, barrier: threading.Barrier) -> None:
        self.sp_rank, self._table, self._barrier = sp_rank, table, barrier
        self.labels: list[str] = []

    def exchange(self, parts_P, *, label):
        return torch.stack([parts[self.sp_rank] for parts in self._shared(parts_P, label)])

    def gather(self, part, *, label):
        return torch.stack(self._shared(part, label))

    def require_equal(self, fields, *, label):
        for theirs in self._shared(fields, label):
            for name, value in fields.items():
                assert value is theirs[name] is None or torch.equal(value, theirs[name]), name

    def _shared(self, value, label):
        self.labels.append(label)
        self._table[self.sp_rank] = value
        self._barrier.wait(timeout=60)
        found = list(self._table)
        self._barrier.wait(timeout=60)
        return found


def run(route, layout, peers=None):
    backbone = tiny(route)
    backbone.sequence = peers
    module = backbone.build(device="cpu", seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.02, generator=generator)
    data = batch(backbone, count=1)
    conditions, latents = backbone.conditions(data), data.latents_BFCHW
    sigma = torch.rand(latents.shape[:2], generator=generator)
    with torch.no_grad():
        if layout == "bidirectional":
            return backbone.velocity(module, latents, sigma, conditions)
        if layout == "teacher_forcing":
            context = backbone.clean_context(0.5 * latents)
            return backbone.velocity(
                module, latents, sigma, conditions, layout=layout, context=context
            )
        cache, parts = backbone.open_cache(latents), []
        for start in range(0, 2 * backbone.window.chunk_frames, backbone.window.chunk_frames):
            here = slice(start, start + backbone.window.chunk_frames)
            part = backbone.frames(conditions, here.start, here.stop)
            chunk = latents[:, here]
            parts.append(
                backbone.velocity(module, chunk, sigma[:, here], part, layout=layout, cache=cache)
            )
            backbone.commit(module, chunk, part, cache)
        return torch.cat(parts, dim=1)


CASES = sorted({(r.family, layout) for r in RUNNABLE for layout in layouts_of(r)})


@pytest.mark.parametrize(("family", "layout"), CASES)
def test_two_ranks_of_a_clip_give_the_velocity_of_one(family, layout):
    route = next(r for r in RUNNABLE if r.family == family and layout in layouts_of(r))
    torch.set_num_threads(1)
    alone = run(route, layout)
    assert bool(alone.any())
    table, barrier = [None] * SIZE, threading.Barrier(SIZE)
    peers = [ThreadPeers(sp_rank, table, barrier) for sp_rank in range(SIZE)]
    found = [None] * SIZE

    def rank(sp_rank: int) -> None:
        try:
            found[sp_rank] = run(route, layout, peers[sp_rank])
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=rank, args=(sp_rank,)) for sp_rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peers[0].labels == peers[1].labels
    assert any("attention" in label for label in peers[0].labels)
    for velocity in found:
        torch.testing.assert_close(velocity, alone, atol=1e-5, rtol=1e-5)


def test_padding_never_reaches_attention():
    """Frames of one rank are poisoned where they are padding: nothing of it comes through."""
    from solarwm.nn.sequence import to_frames, to_heads

    frames, tokens, width = 3, 2, 8
    split = FrameSplit(frames=frames, sp_size=SIZE)
    table, barrier = [None] * SIZE, threading.Barrier(SIZE)
    x = torch.randn(1, frames, tokens, width)
    found = [None] * SIZE

    def rank(sp_rank: int) -> None:
        peers = ThreadPeers(sp_rank, table, barrier)
        mine = split.take(x, sp_rank).clone()
        mine[:, split.counts[sp_rank] :] = torch.nan
        (heads,) = to_heads((mine.flatten(1, 2),), split, peers, label="in")
        (back,) = to_frames((heads,), split, peers, label="out")
        found[sp_rank] = (heads, back)

    threads = [threading.Thread(target=rank, args=(sp_rank,)) for sp_rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = x.flatten(1, 2)
    for sp_rank, (heads, back) in enumerate(found):
        half = slice(sp_rank * width // SIZE, (sp_rank + 1) * width // SIZE)
        assert torch.equal(heads, whole[..., half])
        count = split.counts[sp_rank] * tokens
        start = split.starts[sp_rank] * tokens
        assert torch.equal(back[:, :count], whole[:, start : start + count])
        assert not back[:, count:].any()
