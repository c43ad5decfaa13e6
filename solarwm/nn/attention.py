"""The one place where queries meet keys: PyTorch's SDPA, or FlexAttention for chunk masks.

Measured on a CPU (training, 216 to 2048 tokens, heads of 32 and 64): the fused kernel is never
slower than explicit softmax and up to 1.7x faster, so there is no second path. Chunk masks are never
made dense: every query chunk is one call over the key chunks it sees, or one FlexAttention call over
tiles where that is compiled.

Shapes: B batch, L query tokens, K key tokens, H heads, D head width, S tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from solarwm.nn.flex import attend_tiles

FLEX_DEVICES = ("cuda", "xpu")
"""Devices whose FlexAttention has a compiled backward."""
Pairs = tuple[tuple[int, ...], ...]
"""For every query chunk the key chunks it sees, ascending."""


def attend(q_BLHD: Tensor, k_BKHD: Tensor, v_BKHD: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q k / sqrt(D)) v as [B,L,H,D]; `mask` is boolean, True where a pair is allowed."""
    out = F.scaled_dot_product_attention(
        q_BLHD.transpose(1, 2), k_BKHD.transpose(1, 2), v_BKHD.transpose(1, 2), attn_mask=mask
    )
    return out.transpose(1, 2)


def attend_chunks(
    q_BLHD: Tensor,
    keys_BKHD: Sequence[Tensor],
    values_BKHD: Sequence[Tensor],
    pairs: Pairs,
    *,
    chunk_tokens: int,
    flex: bool = False,
) -> Tensor:
    """Attention of chunk after chunk, each over its own key chunks, as [B,L,H,D].

    `keys` and `values` are whole chunks in one or several parts, numbered through. `flex` runs one
    compiled FlexAttention call instead where the device has a kernel for it.
    """
    if flex and q_BLHD.device.type in FLEX_DEVICES:
        return attend_tiles(
            q_BLHD, _joined(keys_BKHD), _joined(values_BKHD), pairs, chunk_tokens=chunk_tokens
        )
    queries = q_BLHD.split(chunk_tokens, dim=1)
    keys = _ChunkView(keys_BKHD, chunk_tokens)
    values = _ChunkView(values_BKHD, chunk_tokens)
    return torch.cat(
        [
            attend(query, keys.of(seen), values.of(seen))
            for query, seen in zip(queries, pairs, strict=True)
        ],
        dim=1,
    )


class _ChunkView:
    """Chunks of several tensors; a run of chunks inside one tensor is cut out, not copied."""

    def __init__(self, parts: Sequence[Tensor], chunk_tokens: int) -> None:
        self._tokens = chunk_tokens
        self._parts = parts
        self._grad = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
        self._places = [
            (part, index)
            for part, tensor in enumerate(parts)
            for index in range(tensor.shape[1] // chunk_tokens)
        ]
        # Under autograd one split is cheaper than slices: a slice's gradient is as long as its source.
        self._split = [part.split(chunk_tokens, dim=1) for part in parts] if self._grad else None

    def of(self, chunks: Sequence[int]) -> Tensor:
        """The tokens of `chunks` one after another."""
        if self._split is not None:
            return _joined([self._split[part][index] for part, index in self._at(chunks)])
        runs: list[list[int]] = []
        for part, index in self._at(chunks):
            if runs and runs[-1][0] == part and runs[-1][2] == index:
                runs[-1][2] = index + 1
            else:
                runs.append([part, index, index + 1])
        return _joined(
            [
                self._parts[part][:, first * self._tokens : last * self._tokens]
                for part, first, last in runs
            ]
        )

    def _at(self, chunks: Sequence[int]) -> list[tuple[int, int]]:
        return [self._places[chunk] for chunk in chunks]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
