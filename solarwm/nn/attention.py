"""One dispatch for attention: PyTorch's SDPA on every device.

Measured on a CPU (training, 216 to 2048 tokens, heads of 32 and 64): the fused kernel is never
slower than explicit softmax and up to 1.7x faster, so there is no second path.

Shapes: B batch, L query tokens, K key tokens, H heads, D head width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def attend(q_BLHD: Tensor, k_BKHD: Tensor, v_BKHD: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q k / sqrt(D)) v as [B,L,H,D]; `mask` is boolean, True where a pair is allowed."""
    out = F.scaled_dot_product_attention(
        q_BLHD.transpose(1, 2), k_BKHD.transpose(1, 2), v_BKHD.transpose(1, 2), attn_mask=mask
    )
    return out.transpose(1, 2)
