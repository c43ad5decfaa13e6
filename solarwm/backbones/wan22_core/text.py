"""The text encoder of the small profiles: one fixed vector a word, no weights.

Shapes: B prompts, T text tokens, D text width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import torch
from torch import Tensor

END = "</s>"
POSITION_WEIGHT = 0.25
_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")


def words(prompt: str) -> list[str]:
    """Lower-case words and punctuation marks, then the end mark."""
    return [*_WORD.findall(prompt.lower()), END]


@lru_cache(maxsize=8192)
def word_vector(word: str, width: int) -> Tensor:
    """Unit-variance normal vector seeded by BLAKE2b of the word, fp32 [D]."""
    digest = blake2b(f"solarwm.word.v1|{word}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.randn(width, generator=generator)


@lru_cache(maxsize=8)
def position_rows(length: int, width: int) -> Tensor:
    """Sinusoids of the word's place, fp32 [T,D]."""
    half = (width + 1) // 2
    rates = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].float()


def encode_words(prompts: Sequence[str], *, length: int, width: int) -> Tensor:
    """States fp32 [B,T,D]: word vector plus a quarter of its position row, then zeros.

    Words past `length` are cut, the end mark is kept.
    """
    states = torch.zeros(len(prompts), length, width)
    for row, prompt in enumerate(prompts):
        tokens = words(prompt)
        tokens = [*tokens[: length - 1], END] if len(tokens) > length else tokens
        count = len(tokens)
        states[row, :count] = torch.stack([word_vector(token, width) for token in tokens])
        states[row, :count] += POSITION_WEIGHT * position_rows(length, width)[:count]
    return states
