"""Normalisations that compute in fp32 or wider whatever the activations are.

Shapes: B batch, F frames, S tokens of a frame, L tokens, D width, P rotated pairs of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from solarwm.nn.precision import widened
from solarwm.nn.rope import rotate


def layer_norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """LayerNorm over the last axis in fp32; the result has the dtype of `x`."""
    weight = widened(layer.weight) if layer.weight is not None else None
    bias = widened(layer.bias) if layer.bias is not None else None
    return F.layer_norm(widened(x), layer.normalized_shape, weight, bias, layer.eps).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis in fp32; the result has the dtype of `x`."""
    return _NormRotate.apply(x, weight, eps, None)


def norm_rotate(x_BLD: Tensor, weight: Tensor, eps: float, table_LP: Tensor) -> Tensor:
    """RMSNorm over the last axis, then its pairs turned by the complex factors of each token.

    `table` [L,P] holds the factors of one head, repeated over the heads. fp32 inside, dtype of `x`.
    """
    return _NormRotate.apply(x_BLD, weight, eps, table_LP)


def rotated(x_BLD: Tensor, table_LP: Tensor) -> Tensor:
    """Pairs of `x` turned by the complex factors of each token; fp32 inside, dtype of `x`."""
    return _Rotate.apply(x_BLD, table_LP)


class _Rotate(torch.autograd.Function):
    """y = R x. Backward: dx = R^T g."""

    @staticmethod
    def forward(ctx, x, table):  # type: ignore[override]
        ctx.save_for_backward(table)
        return rotate(widened(x), table).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        (table,) = ctx.saved_tensors
        return rotate(widened(grad), table.conj()).to(grad.dtype), None


class _NormRotate(torch.autograd.Function):
    """y = R (w n), n = x / rms(x). Backward: h = w (R^T g), dx = (h - n mean(h n)) / rms(x)."""

    @staticmethod
    def forward(ctx, x, weight, eps, table):  # type: ignore[override]
        full = widened(x)
        width = full.shape[-1]
        norm = torch.linalg.vector_norm(full, dim=-1, keepdim=True)
        inverse = (norm * norm).div_(width).add_(eps).rsqrt_()
        y = (full * inverse).mul_(widened(weight))
        if table is not None:
            y = rotate(y, table)
        ctx.save_for_backward(x, weight, inverse, table)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        x, weight, inverse, table = ctx.saved_tensors
        g = widened(grad)
        if table is not None:
            g = rotate(g, table.conj())
        normal = widened(x) * inverse
        product = g * normal
        w = widened(weight)
        grad_w = product.flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        grad_x = None
        if ctx.needs_input_grad[0]:
            mean = (product @ w).div_(-w.shape[0]).unsqueeze(-1)
            grad_x = (g * w).addcmul_(normal, mean).mul_(inverse).to(x.dtype)
        return grad_x, grad_w, None, None


def modulated(
    x_BFSD: Tensor, layer: nn.LayerNorm, shift_BF1D: Tensor, scale_BF1D: Tensor
) -> Tensor:
    """LN(x) (1 + scale) + shift with one fp32 row a frame, in the dtype of `x`."""
    normal = F.layer_norm(widened(x_BFSD), layer.normalized_shape, eps=layer.eps)
    return torch.addcmul(shift_BF1D, normal, 1 + scale_BF1D).to(x_BFSD.dtype)


def gated(x_BFSD: Tensor, branch_BFSD: Tensor, gate_BF1D: Tensor) -> Tensor:
    """x + branch * gate with one fp32 row a frame, summed in fp32, in the dtype of `x`."""
    return torch.addcmul(widened(x_BFSD), widened(branch_BFSD), gate_BF1D).to(x_BFSD.dtype)
