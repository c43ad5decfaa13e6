"""Chunk windows, chunk attention in its forms, and the tiles FlexAttention gets."""

from __future__ import annotations

import math

import pytest
import torch

from solarwm.nn.attention import attend_chunks
from solarwm.nn.cache import ChunkCache
from solarwm.nn.chunks import ChunkWindow
from solarwm.nn.flex import TILE, tile_mask

WINDOWS = [
    ChunkWindow(chunk_frames=3, prior_chunks=1),
    ChunkWindow(chunk_frames=3, prior_chunks=1, clean_windowed=False),
    ChunkWindow(chunk_frames=3, prior_chunks=0),
    ChunkWindow(chunk_frames=3),
    ChunkWindow(chunk_frames=3, prior_chunks=1, sink_frames=3),
]


def dense(pairs, key_chunks, tokens):
    allowed = torch.zeros(len(pairs), key_chunks, dtype=torch.bool)
    for query, seen in enumerate(pairs):
        for key in seen:
            allowed[query, key] = True
    return allowed.repeat_interleave(tokens, 0).repeat_interleave(tokens, 1)


def by_hand(q, k, v, mask):
    logits = torch.einsum("blhd,bkhd->bhlk", q, k) / math.sqrt(q.shape[-1])
    weights = logits.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.einsum("bhlk,bkhd->blhd", weights, v)


def tensors(length):
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(3, 2, length, 2, 8, generator=generator, dtype=torch.float64)
    return [tensor.requires_grad_() for tensor in made]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("grad", [True, False])
def test_chunk_attention_equals_a_dense_mask_forward_and_backward(window, grad):
    chunks, tokens = 5, 7
    pairs = window.forced_pairs(chunks)
    q, k, v = tensors(2 * chunks * tokens)
    expected = by_hand(q, k, v, dense(pairs, 2 * chunks, tokens))
    gradients = torch.autograd.grad(expected.square().sum(), (q, k, v))
    with torch.set_grad_enabled(grad):
        out = attend_chunks(q, [k], [v], pairs, chunk_tokens=tokens)
        half = chunks * tokens
        halves = [[k[:, :half], k[:, half:]], [v[:, :half], v[:, half:]]]
        noisy = attend_chunks(q[:, half:], *halves, pairs[chunks:], chunk_tokens=tokens)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(noisy, expected[:, half:], atol=1e-12, rtol=1e-12)
    if grad:
        for a, b in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), gradients, strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("tokens", [60, 128, 200])
def test_tiles_cover_exactly_what_the_chunks_allow(window, tokens):
    chunks = 4
    pairs = window.forced_pairs(chunks)
    mask = tile_mask(pairs, 2 * chunks, tokens, torch.device("cpu"))
    whole = dense(pairs, 2 * chunks, tokens)
    tiles = math.ceil(len(whole) / TILE)
    partial, full = torch.zeros(2, tiles, tiles, dtype=torch.bool)
    for row in range(tiles):
        partial[row, mask.kv_indices[0, 0, row, : mask.kv_num_blocks[0, 0, row]].long()] = True
        count = mask.full_kv_num_blocks[0, 0, row]
        full[row, mask.full_kv_indices[0, 0, row, :count].long()] = True
    assert not (partial & full).any()
    for row in range(tiles):
        for column in range(tiles):
            tile = whole[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
            assert bool(partial[row, column] | full[row, column]) == bool(tile.any())
            if full[row, column]:
                assert tile.all()
                assert tile.shape == (TILE, TILE)
    index = torch.arange(len(whole))
    zero = torch.zeros((), dtype=torch.long)
    looked_up = mask.mask_mod(zero, zero, index[:, None], index[None])
    assert torch.equal(looked_up, whole)


def test_flex_attention_under_the_tiles_equals_chunk_by_chunk():
    from torch.nn.attention.flex_attention import flex_attention

    window, chunks, tokens = WINDOWS[0], 3, 50
    pairs = window.forced_pairs(chunks)
    q, k, v = (x.detach().float() for x in tensors(2 * chunks * tokens))
    expected = attend_chunks(q, [k], [v], pairs, chunk_tokens=tokens)
    mask = tile_mask(pairs, 2 * chunks, tokens, torch.device("cpu"))
    out = flex_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), block_mask=mask
    ).transpose(1, 2)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_the_published_clip_needs_only_the_tiles_of_its_window():
    """81 frames at 480p, 17010 tokens: 133 x 133 tiles, of which the rule needs under a third."""
    window = ChunkWindow(chunk_frames=3, prior_chunks=5)
    mask = tile_mask(window.forced_pairs(7), 14, 3 * 405, torch.device("cpu"))
    used = int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())
    assert 133 * 133 * 0.25 < used < 133 * 133 * 0.34
    assert mask.full_kv_num_blocks.sum() > 0.7 * used


def test_windows_are_whole_chunks():
    window = ChunkWindow(chunk_frames=3)
    assert window.chunks(21) == 7
    with pytest.raises(ValueError, match="the next number is 24"):
        window.chunks(22)
    with pytest.raises(ValueError, match="whole chunks of 3"):
        ChunkWindow(chunk_frames=3, sink_frames=4)
    with pytest.raises(ValueError, match="at least 0"):
        ChunkWindow(chunk_frames=3, prior_chunks=-1)


def test_a_ring_never_moves_kept_frames_and_keeps_its_sinks():
    window = ChunkWindow(chunk_frames=3, prior_chunks=2, sink_frames=3)
    cache = ChunkCache(window=window)
    seen: dict[int, int] = {}
    for position in range(0, 60, 3):
        cache.position = position
        places = {
            frame: cache.place(frame) for frame in (*cache.visible_frames, *cache.next_frames())
        }
        assert len(set(places.values())) == len(places)
        assert max(places.values()) < cache.places == 12
        for frame, place in places.items():
            assert seen.setdefault(frame, place) == place
        assert cache.visible_frames[:3] == ((0, 1, 2) if position else ())


@pytest.mark.parametrize("aligned", [True, False])
def test_slots_of_a_window(aligned):
    window = ChunkWindow(chunk_frames=3, prior_chunks=1, slot_frames=9, aligned=aligned)
    cache = ChunkCache(window=window)
    last = []
    for position in range(0, 18, 3):
        cache.position = position
        last.append(cache.slots()[position + 2])
        assert sorted(cache.slots().values()) == list(
            range(last[-1] - len(cache.slots()) + 1, last[-1] + 1)
        )
    assert last == ([2, 5, 8, 8, 8, 8] if aligned else [2, 5, 5, 5, 5, 5])
