"""Names of the Wan transformer's tensors: published (also official, also ours) and diffusers.

The norms swap: published `norm3` is diffusers `norm2`; the other two have no tensors.
"""

from __future__ import annotations

import re

# (published, diffusers) beginnings of a name; the longest match wins.
_TOP = (
    ("patch_embedding.", "patch_embedding."),
    ("text_embedding.0.", "condition_embedder.text_embedder.linear_1."),
    ("text_embedding.2.", "condition_embedder.text_embedder.linear_2."),
    ("time_embedding.0.", "condition_embedder.time_embedder.linear_1."),
    ("time_embedding.2.", "condition_embedder.time_embedder.linear_2."),
    ("time_projection.1.", "condition_embedder.time_proj."),
    ("delta_embedding.0.", "condition_embedder.delta_embedder.linear_1."),
    ("delta_embedding.2.", "condition_embedder.delta_embedder.linear_2."),
    ("head.head.", "proj_out."),
    ("head.modulation", "scale_shift_table"),
)
_ATTENTION = (
    ("q.", "to_q."),
    ("k.", "to_k."),
    ("v.", "to_v."),
    ("o.", "to_out.0."),
    ("norm_q.", "norm_q."),
    ("norm_k.", "norm_k."),
)
_BLOCK = (
    ("modulation", "scale_shift_table"),
    *((f"self_attn.{ours}", f"attn1.{theirs}") for ours, theirs in _ATTENTION),
    *((f"cross_attn.{ours}", f"attn2.{theirs}") for ours, theirs in _ATTENTION),
    ("norm3.", "norm2."),
    ("ffn.0.", "ffn.net.0.proj."),
    ("ffn.2.", "ffn.net.2."),
)
_BLOCK_NAME = re.compile(r"(blocks\.\d+\.)(.+)")


def to_diffusers(name: str) -> str | None:
    """The diffusers name of a published one, or None for a name Wan does not have."""
    return _renamed(name, 0, 1)


def from_diffusers(name: str) -> str | None:
    """The published name of a diffusers one, or None for a name Wan does not have."""
    return _renamed(name, 1, 0)


def _renamed(name: str, source: int, target: int) -> str | None:
    match = _BLOCK_NAME.fullmatch(name)
    head, rest, table = (match[1], match[2], _BLOCK) if match else ("", name, _TOP)
    for row in table:
        if rest.startswith(row[source]):
            return head + row[target] + rest[len(row[source]) :]
    return None


def naming_of(names: list[str]) -> str:
    """`diffusers` when the names are diffusers', else `published`."""
    marks = ("condition_embedder.", "proj_out.")
    return "diffusers" if any(name.startswith(marks) for name in names) else "published"
