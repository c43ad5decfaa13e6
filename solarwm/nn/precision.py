"""Where a result must not be narrower than fp32."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """`x` in fp32, or as it is when it is float64 already."""
    return x if x.dtype == torch.float64 else x.float()
