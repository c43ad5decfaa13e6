"""Several linear layers that read the same input, computed as one matrix product.

The layers stay separate modules with their own parameters (state-dict keys, LoRA targets,
gradients); only their storage is shared: `pack` lays their weights one after another in one buffer
and makes each parameter a view of its part. Anything that replaces the storage (sharding, adapters,
assignment) falls back to one product a layer with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.no_grad()
def pack(layers: Sequence[nn.Linear]) -> None:
    """Move the parameters of `layers` into shared storage, values unchanged. Meta tensors stay."""
    for name in ("weight", "bias"):
        parameters = [getattr(layer, name) for layer in layers]
        if any(type(p.data) is not Tensor or p.is_meta for p in parameters):
            continue
        if _whole([p.data for p in parameters]) is not None:
            continue
        buffer = torch.cat([p.data for p in parameters])
        for parameter, part in zip(
            parameters, buffer.split([p.shape[0] for p in parameters]), strict=True
        ):
            parameter.data = part


def project(layers: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, ...]:
    """One output a layer; one matrix product when `pack` holds and no layer is wrapped."""
    casts = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if casts or any(type(m) is not nn.Linear for m in layers):
        return tuple(layer(x) for layer in layers)
    linears: list[nn.Linear] = list(layers)  # type: ignore[arg-type]
    if any(m._forward_hooks or m._forward_pre_hooks for m in linears):
        return tuple(layer(x) for layer in linears)
    weight = _whole([m.weight for m in linears])
    bias = _whole([m.bias for m in linears])
    if weight is None or bias is None:
        return tuple(layer(x) for layer in linears)
    sizes = [m.out_features for m in linears]
    parameters = [m.weight for m in linears] + [m.bias for m in linears]
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in parameters)):
        out = _PackedLinear.apply(x, weight, bias, len(linears), *parameters)
    else:
        out = F.linear(x, weight, bias)
    return out.split(sizes, dim=-1)


def _whole(parts: Sequence[Tensor]) -> Tensor | None:
    """One tensor over the parts stacked along axis 0, or None unless they lie end to end."""
    first = parts[0]
    offset = first.storage_offset()
    for part in parts:
        if type(part) not in (Tensor, nn.Parameter) or part.is_meta or not part.is_contiguous():
            return None
        if (
            part.untyped_storage()._cdata != first.untyped_storage()._cdata
            or part.storage_offset() != offset
        ):
            return None
        offset += part.numel()
    rows = sum(part.shape[0] for part in parts)
    return first.detach().as_strided((rows, *first.shape[1:]), first.stride())


class _PackedLinear(torch.autograd.Function):
    """y = x W^T + b on the packed storage; gradients go to the separate parameters."""

    @staticmethod
    def forward(ctx, x, weight, bias, count, *parameters):  # type: ignore[override]
        ctx.save_for_backward(x, *parameters[:count])
        ctx.count = count
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        x, *weights = ctx.saved_tensors
        needs = ctx.needs_input_grad
        sizes = [w.shape[0] for w in weights]
        rows = grad.reshape(-1, grad.shape[-1])
        whole = _whole(weights)
        grad_x = None
        if needs[0]:
            if whole is None:
                whole = torch.cat(weights)
            grad_x = (rows @ whole).view(x.shape)
        grad_w: list[Tensor | None] = [None] * ctx.count
        grad_b: list[Tensor | None] = [None] * ctx.count
        if any(needs[4 : 4 + ctx.count]):
            grad_w = list((rows.t() @ x.reshape(-1, x.shape[-1])).split(sizes))
        if any(needs[4 + ctx.count :]):
            grad_b = list(rows.sum(0).split(sizes))
        return (grad_x, None, None, None, *grad_w, *grad_b)
