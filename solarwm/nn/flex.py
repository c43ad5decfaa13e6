"""Chunk masks for FlexAttention, as tiles computed from chunks: no token-by-token matrix exists.

Shapes: B batch, L query tokens, K key tokens, H heads, D head width, Q query tiles, T key tiles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

TILE = 128


def attend_tiles(
    q_BLHD: Tensor,
    k_BKHD: Tensor,
    v_BKHD: Tensor,
    pairs: tuple[tuple[int, ...], ...],
    *,
    chunk_tokens: int,
) -> Tensor:
    """One compiled FlexAttention call over the tiles of `pairs`, as [B,L,H,D]."""
    mask = tile_mask(pairs, k_BKHD.shape[1] // chunk_tokens, chunk_tokens, q_BLHD.device)
    out = _compiled()(
        q_BLHD.transpose(1, 2), k_BKHD.transpose(1, 2), v_BKHD.transpose(1, 2), block_mask=mask
    )
    return out.transpose(1, 2)


@lru_cache(maxsize=32)
def tile_mask(
    pairs: tuple[tuple[int, ...], ...], key_chunks: int, chunk_tokens: int, device: torch.device
) -> Any:
    """The `BlockMask` of `pairs`, kept for the next call with the same geometry.

    A tile is skipped when no chunk of its rows sees a chunk of its columns, and run without a mask
    when all see all; only the tiles in between look pairs up.
    """
    from torch.nn.attention.flex_attention import BlockMask

    allowed = torch.zeros(len(pairs), key_chunks, dtype=torch.bool)
    for query, seen in enumerate(pairs):
        allowed[query, list(seen)] = True
    rows, columns = (_tiles(count, chunk_tokens) for count in allowed.shape)
    some_QT = rows @ allowed.float() @ columns.T > 0
    none_QT = rows @ (~allowed).float() @ columns.T > 0
    full_QT = some_QT & ~none_QT
    full_QT &= _whole(len(pairs), chunk_tokens)[:, None] & _whole(key_chunks, chunk_tokens)
    lookup = allowed.to(device)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del batch, head
        return lookup[query // chunk_tokens, key // chunk_tokens]

    partial = _ordered(some_QT & ~full_QT, device)
    full = _ordered(full_QT, device)
    return BlockMask.from_kv_blocks(
        *partial,
        *full,
        BLOCK_SIZE=TILE,
        mask_mod=visible,
        seq_lengths=(len(pairs) * chunk_tokens, key_chunks * chunk_tokens),
    )


def _tiles(chunks: int, chunk_tokens: int) -> Tensor:
    """fp32 [tiles, chunks]: 1 where a tile holds tokens of a chunk."""
    count = -(-chunks * chunk_tokens // TILE)
    first = torch.arange(count)[:, None] * TILE
    start = torch.arange(chunks)[None] * chunk_tokens
    return ((start < first + TILE) & (start + chunk_tokens > first)).float()


def _whole(chunks: int, chunk_tokens: int) -> Tensor:
    """bool [tiles]: True where a tile ends before the tokens do."""
    tokens = chunks * chunk_tokens
    return (torch.arange(-(-tokens // TILE)) + 1) * TILE <= tokens


def _ordered(tiles_QT: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """(count, indices) of the marked tiles of each row, int32, marked ones first."""
    count = tiles_QT.sum(-1, dtype=torch.int32)
    order = tiles_QT.int().argsort(dim=-1, descending=True, stable=True).int()
    return count[None, None].to(device), order[None, None].to(device)


@lru_cache(maxsize=1)
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)
