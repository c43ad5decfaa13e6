"""One clip over several ranks: each holds some of its frames, attention holds some of its heads.

Every rank of a sequence-parallel group runs the transformer on its own whole frames. Inside
self-attention one exchange turns "my frames, all heads" into "all frames, my heads", whatever the
layout is, and one turns the output back; positions and cameras are applied in between, so no layout
knows of it. Ranks hold equally many frames: the shorter ones repeat a frame, whose tokens never
reach attention and whose outputs are dropped.

Shapes: B batch, F frames of a segment, G segments of a forward, S tokens of a frame, L = G F S
tokens, D width of all heads, E = D / P width of the heads of one rank, P ranks of the group, N
tensors of one exchange, K tokens of a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from solarwm.nn.layouts import Layout, Projected


class SequencePeers(Protocol):
    """The ranks that share one sample."""

    @property
    def sp_rank(self) -> int:
        """Place of this rank among them."""
        ...

    @property
    def sp_size(self) -> int:
        """How many they are."""
        ...

    def exchange(self, parts_P: Tensor, *, label: str) -> Tensor:
        """[P, ...]: part i goes to peer i; what the peers sent, in their order. Collective."""
        ...

    def gather(self, part: Tensor, *, label: str) -> Tensor:
        """`part` of every peer, stacked [P, ...]. Collective."""
        ...

    def require_equal(self, fields: Mapping[str, Any], *, label: str) -> None:
        """Where this step is checked, refuse fields that differ between peers. Collective."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSplit:
    """Whole frames of a segment over the ranks of a group, the remainder to the low ranks."""

    frames: int
    sp_size: int
    segments: int = 1
    """Runs of `frames` frames in one forward: 2 for `[clean | noisy]`."""

    @property
    def share(self) -> int:
        """Frames a segment that every rank computes, padding included."""
        return -(-self.frames // self.sp_size)

    @property
    def counts(self) -> tuple[int, ...]:
        """Frames of a segment of each rank."""
        each, rest = divmod(self.frames, self.sp_size)
        return tuple(each + (sp_rank < rest) for sp_rank in range(self.sp_size))

    @property
    def starts(self) -> tuple[int, ...]:
        """First frame of each rank."""
        counts = self.counts
        return tuple(sum(counts[:sp_rank]) for sp_rank in range(self.sp_size))

    def own(self, sp_rank: int) -> tuple[int, ...]:
        """Frames of a rank over all segments, each segment padded by its last frame so far."""
        start, count = self.starts[sp_rank], self.counts[sp_rank]
        here = [min(start + i, max(start + count, 1) - 1) for i in range(self.share)]
        return tuple(i * self.frames + frame for i in range(self.segments) for frame in here)

    def take(self, x_BF: Tensor, sp_rank: int) -> Tensor:
        """The frames (axis 1) of a rank."""
        index = torch.tensor(self.own(sp_rank), device=x_BF.device)
        return x_BF.index_select(1, index)


class SplitLayout:
    """A layout whose forward holds this rank's frames only."""

    def __init__(self, whole: Layout, split: FrameSplit, peers: SequencePeers) -> None:
        self._whole = whole
        self._split = split
        self._peers = peers

    @property
    def out_frames(self) -> int:
        """Frames of this rank that a velocity is wanted of."""
        return self._whole.out_frames // self._split.frames * self._split.share

    @property
    def text_memory(self) -> list[tuple[Tensor, Tensor]] | None:
        """That of the whole layout: text is not split."""
        return self._whole.text_memory

    def attend(self, layer: int, last: bool, projected: Projected) -> Tensor | None:
        """Attention of all frames over this rank's heads, given back to the ranks of the frames.

        Two exchanges a layer; one in the last layer of a commit.
        """
        p, split, peers = projected, self._split, self._peers
        query, key, value = to_heads(
            (p.normed_query(), p.normed_key(), p.value),
            split,
            peers,
            label=f"attention {layer} in",
        )
        out = self._whole.attend(
            layer,
            last,
            Projected(
                query=query,
                key=key,
                value=value,
                query_weight=None,
                key_weight=None,
                eps=p.eps,
                num_heads=p.num_heads // split.sp_size,
            ),
        )
        if out is None:
            return None
        tokens = query.shape[1] // (split.frames * split.segments)
        kept = FrameSplit(
            frames=split.frames,
            sp_size=split.sp_size,
            segments=out.shape[1] // (split.frames * tokens),
        )
        return to_frames((out,), kept, peers, label=f"attention {layer} out")[0]


def to_heads(
    tokens_BKD: Sequence[Tensor], split: FrameSplit, peers: SequencePeers, *, label: str
) -> tuple[Tensor, ...]:
    """This rank's frames with all heads to all frames with this rank's heads, [B,L,E].

    One collective for all tensors, one more in the backward.
    """
    return _ToHeads.apply(split, peers, label, *tokens_BKD)


def to_frames(
    heads_BLE: Sequence[Tensor], split: FrameSplit, peers: SequencePeers, *, label: str
) -> tuple[Tensor, ...]:
    """The way back: all frames with this rank's heads to this rank's frames with all heads.

    One collective for all tensors, one more in the backward. Padded frames come back as zeros.
    """
    return _ToFrames.apply(split, peers, label, *heads_BLE)


def whole(part_BF: Tensor, split: FrameSplit, peers: SequencePeers, *, label: str) -> Tensor:
    """The frames (axis 1, one segment) of all ranks in order, the padding dropped.

    Every rank must use the result alike: the backward takes this rank's frames out of the gradient
    and exchanges nothing. One collective.
    """
    return _Whole.apply(split, peers, label, part_BF)


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, split, peers, label, *tokens):  # type: ignore[override]
        ctx.split, ctx.peers, ctx.label = split, peers, label
        return _send_heads(tokens, split, peers, label)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        back = _send_frames(grads, ctx.split, ctx.peers, f"{ctx.label}, backward")
        return (None, None, None, *back)


class _ToFrames(torch.autograd.Function):
    @staticmethod
    def forward(ctx, split, peers, label, *heads):  # type: ignore[override]
        ctx.split, ctx.peers, ctx.label = split, peers, label
        return _send_frames(heads, split, peers, label)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        back = _send_heads(grads, ctx.split, ctx.peers, f"{ctx.label}, backward")
        return (None, None, None, *back)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, split, peers, label, part):  # type: ignore[override]
        ctx.split, ctx.sp_rank = split, peers.sp_rank
        parts = peers.gather(part.contiguous(), label=label)
        return torch.cat(
            [part[:, :count] for part, count in zip(parts, split.counts, strict=True)], dim=1
        )

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        split, sp_rank = ctx.split, ctx.sp_rank
        start, count = split.starts[sp_rank], split.counts[sp_rank]
        part = grad.new_zeros(grad.shape[0], split.share, *grad.shape[2:])
        part[:, :count] = grad[:, start : start + count]
        return None, None, None, part


def _send_heads(
    tokens_BKD: Sequence[Tensor], split: FrameSplit, peers: SequencePeers, label: str
) -> tuple[Tensor, ...]:
    size, first = split.sp_size, tokens_BKD[0]
    batch, length, width = first.shape
    send_PNBKE = first.new_empty(size, len(tokens_BKD), batch, length, width // size)
    for i, x in enumerate(tokens_BKD):
        send_PNBKE[:, i] = x.unflatten(2, (size, -1)).permute(2, 0, 1, 3)
    came = peers.exchange(send_PNBKE, label=label).unflatten(3, (split.segments, split.share, -1))
    ranks = [(sp_rank, count) for sp_rank, count in enumerate(split.counts) if count]
    return tuple(
        torch.cat(
            [
                came[sp_rank, i, :, segment, :count].flatten(1, 2)
                for segment in range(split.segments)
                for sp_rank, count in ranks
            ],
            dim=1,
        )
        for i in range(len(tokens_BKD))
    )


def _send_frames(
    heads_BLE: Sequence[Tensor], split: FrameSplit, peers: SequencePeers, label: str
) -> tuple[Tensor, ...]:
    size, first = split.sp_size, heads_BLE[0]
    frames = (split.segments, split.frames)
    batch, length, width = first.shape
    tokens = length // (split.segments * split.frames)
    shape = (size, len(heads_BLE), batch, split.segments, split.share, tokens, width)
    padded = split.share * size > split.frames
    send = first.new_zeros(shape) if padded else first.new_empty(shape)
    for i, x in enumerate(heads_BLE):
        x_BGFSE = x.unflatten(1, (*frames, tokens))
        for sp_rank, (start, count) in enumerate(zip(split.starts, split.counts, strict=True)):
            send[sp_rank, i, :, :, :count] = x_BGFSE[:, :, start : start + count]
    came_PNBKE = peers.exchange(send.flatten(3, 5), label=label)
    return tuple(came_PNBKE[:, i].permute(1, 2, 0, 3).flatten(2) for i in range(len(heads_BLE)))
