"""The parts of the Wan 2.2 diffusion transformer, with the published parameter names.

Shapes: B batch, F latent frames, S tokens of a frame, L = F S tokens, T text tokens, D width, H
heads, W head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from solarwm.nn.attention import attend
from solarwm.nn.layouts import Layout, Projected
from solarwm.nn.norms import gated, layer_norm, modulated, rms_norm
from solarwm.nn.packed import pack, project
from solarwm.nn.precision import widened

EPS = 1e-6


class RootMeanSquare(nn.Module):
    """The weight of an RMSNorm over all heads together."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))


class SelfAttention(nn.Module):
    """Self-attention: projections here, what sees what in the layout."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)
        self.norm_q = RootMeanSquare(dim)
        self.norm_k = RootMeanSquare(dim)
        self.pack()

    def pack(self) -> None:
        """Give q, k and v one storage."""
        pack((self.q, self.k, self.v))

    def forward(self, x_BLD: Tensor, layout: Layout, layer: int, last: bool) -> Tensor | None:
        """Attention output before the gate: [B,L,D], in the last layer of the layout's last frames
        only; None where there are none."""
        q, k, v = project((self.q, self.k, self.v), x_BLD)
        projected = Projected(
            query=q,
            key=k,
            value=v,
            query_weight=self.norm_q.weight,
            key_weight=self.norm_k.weight,
            eps=EPS,
            num_heads=self.num_heads,
        )
        out = layout.attend(layer, last, projected)
        return None if out is None else self.o(out)


class CrossAttention(nn.Module):
    """Attention from video tokens to text tokens; padded text rows take part."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)
        self.norm_q = RootMeanSquare(dim)
        self.norm_k = RootMeanSquare(dim)
        self.pack()

    def pack(self) -> None:
        """Give k and v one storage."""
        pack((self.k, self.v))

    def forward(
        self, x_BLD: Tensor, text_BTD: Tensor | None, kept: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Attention output [B,L,D]; `kept` are the keys and values of the text, if known."""
        heads = (self.num_heads, -1)
        q = rms_norm(self.q(x_BLD), self.norm_q.weight, EPS)
        k, v = kept or self.text_keys(text_BTD)
        out = attend(q.unflatten(-1, heads), k.unflatten(-1, heads), v.unflatten(-1, heads))
        return self.o(out.flatten(2))

    def text_keys(self, text_BTD: Tensor | None) -> tuple[Tensor, Tensor]:
        """Normed keys and values [B,T,D] of the text."""
        assert text_BTD is not None
        k, v = project((self.k, self.v), text_BTD)
        return rms_norm(k, self.norm_k.weight, EPS), v


class WanBlock(nn.Module):
    """One transformer block; every frame has its own modulation row, fp32."""

    def __init__(self, dim: int, num_heads: int, ffn_dim: int, *, layer: int, last: bool) -> None:
        super().__init__()
        self.layer = layer
        self.last = last
        self.norm1 = nn.LayerNorm(dim, EPS, elementwise_affine=False)
        self.self_attn = SelfAttention(dim, num_heads)
        self.norm3 = nn.LayerNorm(dim, EPS)
        self.cross_attn = CrossAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, EPS, elementwise_affine=False)
        self.ffn = nn.Sequential(
            nn.Linear(dim, ffn_dim), nn.GELU(approximate="tanh"), nn.Linear(ffn_dim, dim)
        )
        self.modulation = nn.Parameter(torch.empty(1, 6, dim))

    def forward(
        self, x_BLD: Tensor, six_BF6D: Tensor, text_BTD: Tensor | None, layout: Layout
    ) -> Tensor:
        """The tokens after this block; `six` is the shared time projection, fp32.

        The last block gives the layout's last frames alone: nothing reads the others any more.
        """
        frames = six_BF6D.shape[1]
        rows = (widened(self.modulation)[:, None] + six_BF6D).unsqueeze(3).unbind(2)
        shift1, scale1, gate1, shift2, scale2, gate2 = rows
        x = x_BLD.unflatten(1, (frames, -1))
        branch = self.self_attn(
            modulated(x, self.norm1, shift1, scale1).flatten(1, 2), layout, self.layer, self.last
        )
        if branch is None:
            return x_BLD
        unread = frames - layout.out_frames if self.last else 0
        if unread:
            x = x[:, unread:]
            gate1, shift2, scale2, gate2 = (
                row[:, unread:] for row in (gate1, shift2, scale2, gate2)
            )
            frames -= unread
        x = gated(x, branch.unflatten(1, (frames, -1)), gate1).flatten(1, 2)
        x = x + self.cross_attn(layer_norm(x, self.norm3), text_BTD, self._text(text_BTD, layout))
        x = x.unflatten(1, (frames, -1))
        branch = self.ffn(modulated(x, self.norm2, shift2, scale2))
        return gated(x, branch, gate2).flatten(1, 2)

    def _text(self, text_BTD: Tensor | None, layout: Layout) -> tuple[Tensor, Tensor] | None:
        memory = layout.text_memory
        if memory is None:
            return None
        if len(memory) == self.layer:
            memory.append(self.cross_attn.text_keys(text_BTD))
        return memory[self.layer]


class Head(nn.Module):
    """Final modulation and projection to patches."""

    def __init__(self, dim: int, out_features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, EPS, elementwise_affine=False)
        self.head = nn.Linear(dim, out_features)
        self.modulation = nn.Parameter(torch.empty(1, 2, dim))

    def forward(self, x_BLD: Tensor, time_BFD: Tensor) -> Tensor:
        """Patches [B,L,out_features]."""
        rows = widened(self.modulation)[:, None] + time_BFD.unsqueeze(2)
        shift, scale = rows.unsqueeze(3).unbind(2)
        x = x_BLD.unflatten(1, (time_BFD.shape[1], -1))
        return self.head(modulated(x, self.norm, shift, scale).flatten(1, 2))


def sinusoid(native_time: Tensor, freq_dim: int) -> Tensor:
    """[cos | sin] of t 10000^(-i / half), half = freq_dim / 2, computed in float64."""
    half = freq_dim // 2
    exponents = torch.arange(half, dtype=torch.float64, device=native_time.device) / half
    angle = native_time.double()[..., None] * torch.pow(10000.0, -exponents)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)
