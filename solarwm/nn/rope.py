"""Three-axis rotary positions: tables once a geometry, fp32 pairs rounded from float64.

Shapes: B batch, L tokens, D width of all heads, P rotated pairs (2i, 2i + 1) of one head.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from solarwm.nn.precision import widened

BASE = 10000.0


def axis_pairs(head_dim: int) -> tuple[int, int, int]:
    """Pairs of the temporal, vertical and horizontal axis: c - 2 (c // 3), c // 3, c // 3."""
    pairs = head_dim // 2
    third = pairs // 3
    return pairs - 2 * third, third, third


def rotation_table(slots: tuple[int, ...], height: int, width: int, head_dim: int) -> Tensor:
    """Complex64 [L,P] factors of tokens in (slot, row, column) order, on the CPU.

    Each axis has its own frequencies BASE^(-i / pairs of that axis), i = 0, 1, ..., in float64.
    """
    angles = []
    for positions, pairs in zip(
        (torch.tensor(slots), torch.arange(height), torch.arange(width)),
        axis_pairs(head_dim),
        strict=True,
    ):
        exponents = torch.arange(pairs, dtype=torch.float64) / max(pairs, 1)
        angles.append(torch.outer(positions.double(), BASE**-exponents))
    temporal, vertical, horizontal = angles
    grid = (len(slots), height, width)
    angle = torch.cat(
        [
            temporal[:, None, None].expand(*grid, -1),
            vertical[None, :, None].expand(*grid, -1),
            horizontal[None, None, :].expand(*grid, -1),
        ],
        dim=-1,
    ).reshape(-1, head_dim // 2)
    pairs = torch.stack([angle.cos(), angle.sin()], dim=-1).float()
    return torch.view_as_complex(pairs)


@lru_cache(maxsize=64)
def cached_table(
    slots: tuple[int, ...], height: int, width: int, head_dim: int, device: torch.device
) -> Tensor:
    """`rotation_table` on `device`, kept for the next call with the same geometry."""
    with torch.inference_mode(False):  # a table first made while generating also serves training
        return rotation_table(slots, height, width, head_dim).to(device)


def rotate(x_BLD: Tensor, table_LP: Tensor) -> Tensor:
    """Every pair of `x` turned by its token's angles; D is the heads side by side, 2 P each."""
    pairs = torch.view_as_complex(x_BLD.unflatten(-1, (-1, table_LP.shape[-1], 2)))
    return torch.view_as_real(pairs * table_LP[:, None]).flatten(-3)


def turned(x_BLD: Tensor, table_LP: Tensor) -> Tensor:
    """`rotate` in fp32 or wider, in the dtype of `x`; no gradient is expected."""
    return rotate(widened(x_BLD), table_LP).to(x_BLD.dtype)
