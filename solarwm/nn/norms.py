"""Normalisations that compute in fp32 whatever the activations are.

Shapes: B batch, F frames, S tokens of a frame, D width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def layer_norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """LayerNorm over the last axis in fp32; the result has the dtype of `x`."""
    weight = layer.weight.float() if layer.weight is not None else None
    bias = layer.bias.float() if layer.bias is not None else None
    return F.layer_norm(x.float(), layer.normalized_shape, weight, bias, layer.eps).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis in fp32; the result has the dtype of `x`."""
    return (F.rms_norm(x.float(), x.shape[-1:], None, eps) * weight.float()).to(x.dtype)


def modulated(
    x_BFSD: Tensor, layer: nn.LayerNorm, shift_BF1D: Tensor, scale_BF1D: Tensor
) -> Tensor:
    """LN(x) (1 + scale) + shift with one fp32 row a frame, in the dtype of `x`."""
    normal = F.layer_norm(x_BFSD.float(), layer.normalized_shape, eps=layer.eps)
    return (normal * (1 + scale_BF1D) + shift_BF1D).to(x_BFSD.dtype)


def gated(x_BFSD: Tensor, branch_BFSD: Tensor, gate_BF1D: Tensor) -> Tensor:
    """x + branch * gate with one fp32 row a frame, summed in fp32, in the dtype of `x`."""
    return (x_BFSD.float() + branch_BFSD.float() * gate_BF1D).to(x_BFSD.dtype)
