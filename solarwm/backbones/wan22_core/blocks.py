"""The parts of the Wan 2.2 diffusion transformer, with the published parameter names.

Shapes: B batch, F latent frames, S tokens of a frame, L = F S tokens, T text tokens, D width, H
heads, W head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from solarwm.nn.attention import attend
from solarwm.nn.camera_attention import CameraMatrices, transform
from solarwm.nn.norms import gated, layer_norm, modulated, norm_rotate, rms_norm
from solarwm.nn.packed import pack, project
from solarwm.nn.precision import widened

EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLayout:
    """Where the tokens sit: what every block of one forward shares."""

    frames: int
    rotation_LP: Tensor
    """Complex rotary factors."""
    camera: CameraMatrices | None


class RootMeanSquare(nn.Module):
    """The weight of an RMSNorm over all heads together."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))


class SelfAttention(nn.Module):
    """Self-attention over all tokens: q and k normed and rotated, then camera, then attention."""

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

    def forward(self, x_BLD: Tensor, layout: TokenLayout) -> Tensor:
        """Attention output [B,L,D] before the gate."""
        heads = (self.num_heads, -1)
        q, k, v = project((self.q, self.k, self.v), x_BLD)
        q = norm_rotate(q, self.norm_q.weight, EPS, layout.rotation_LP)
        k = norm_rotate(k, self.norm_k.weight, EPS, layout.rotation_LP)
        q_BLHW, k_BLHW = q.unflatten(-1, heads), k.unflatten(-1, heads)
        v_BLHW = v.unflatten(-1, heads)
        camera = layout.camera
        if camera is None:
            out = attend(q_BLHW, k_BLHW, v_BLHW)
        else:
            out = attend(
                transform(q_BLHW, camera.query_BFGG),
                transform(k_BLHW, camera.key_BFGG),
                transform(v_BLHW, camera.key_BFGG),
            )
            out = transform(out, camera.out_BFGG)
        return self.o(out.flatten(2))


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

    def forward(self, x_BLD: Tensor, text_BTD: Tensor) -> Tensor:
        """Attention output [B,L,D]."""
        heads = (self.num_heads, -1)
        q = rms_norm(self.q(x_BLD), self.norm_q.weight, EPS)
        k, v = project((self.k, self.v), text_BTD)
        k = rms_norm(k, self.norm_k.weight, EPS)
        out = attend(q.unflatten(-1, heads), k.unflatten(-1, heads), v.unflatten(-1, heads))
        return self.o(out.flatten(2))


class WanBlock(nn.Module):
    """One transformer block; every frame has its own modulation row, fp32."""

    def __init__(self, dim: int, num_heads: int, ffn_dim: int) -> None:
        super().__init__()
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
        self, x_BLD: Tensor, six_BF6D: Tensor, text_BTD: Tensor, layout: TokenLayout
    ) -> Tensor:
        """The tokens after this block; `six` is the shared time projection, fp32."""
        rows = (widened(self.modulation)[:, None] + six_BF6D).unsqueeze(3).unbind(2)
        shift1, scale1, gate1, shift2, scale2, gate2 = rows
        frames = (six_BF6D.shape[1], -1)
        x = x_BLD.unflatten(1, frames)
        branch = self.self_attn(modulated(x, self.norm1, shift1, scale1).flatten(1, 2), layout)
        x = gated(x, branch.unflatten(1, frames), gate1).flatten(1, 2)
        x = x + self.cross_attn(layer_norm(x, self.norm3), text_BTD)
        x = x.unflatten(1, frames)
        branch = self.ffn(modulated(x, self.norm2, shift2, scale2))
        return gated(x, branch, gate2).flatten(1, 2)


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
