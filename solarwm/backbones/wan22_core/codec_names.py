"""Names of the Wan autoencoders' and text encoder's tensors: published, and those of the libraries.

The published Wan 2.1 autoencoder counts its blocks in one flat list, the 2.2 one in a list a level.
"""

from __future__ import annotations

import re

_TOP = (
    ("conv1.", "quant_conv."),
    ("conv2.", "post_quant_conv."),
)
_SIDE = (
    ("conv1.", "conv_in."),
    ("head.0.", "norm_out."),
    ("head.2.", "conv_out."),
    ("middle.0.", "mid_block.resnets.0."),
    ("middle.1.", "mid_block.attentions.0."),
    ("middle.2.", "mid_block.resnets.1."),
)
_RESIDUAL = (
    ("residual.0.", "norm1."),
    ("residual.2.", "conv1."),
    ("residual.3.", "norm2."),
    ("residual.6.", "conv2."),
    ("shortcut.", "conv_shortcut."),
)
_SAMPLING = ("resample.", "time_conv.")
_SIDE_NAME = re.compile(r"(encoder\.|decoder\.)(.+)")
_NESTED = re.compile(r"(?:down|up)samples\.(\d+)\.(down|up)samples\.(\d+)\.(.+)")
_FLAT = re.compile(r"(down|up)samples\.(\d+)\.(.+)")
_LIBRARY_NESTED = re.compile(
    r"(down|up)_blocks\.(\d+)\.(?:resnets\.(\d+)|(?:down|up)sampler)\.(.+)"
)
_LIBRARY_DOWN = re.compile(r"down_blocks\.(\d+)\.(.+)")
_LIBRARY_UP = re.compile(r"up_blocks\.(\d+)\.(?:resnets\.(\d+)|upsamplers\.0)\.(.+)")

_TEXT_TOP = (
    ("token_embedding.", "shared."),
    ("norm.", "encoder.final_layer_norm."),
)
_TEXT_BLOCK = (
    ("norm1.", "layer.0.layer_norm."),
    ("attn.", "layer.0.SelfAttention."),
    ("pos_embedding.embedding.", "layer.0.SelfAttention.relative_attention_bias."),
    ("norm2.", "layer.1.layer_norm."),
    ("ffn.gate.0.", "layer.1.DenseReluDense.wi_0."),
    ("ffn.fc1.", "layer.1.DenseReluDense.wi_1."),
    ("ffn.fc2.", "layer.1.DenseReluDense.wo."),
)
_TEXT_NAME = re.compile(r"(?:blocks|encoder\.block)\.(\d+)\.(.+)")


def is_published_vae(names: list[str]) -> bool:
    """True for the names of a published `.pth`, False for diffusers'."""
    return any(name.startswith(("encoder.middle.", "encoder.downsamples.")) for name in names)


def is_published_text(names: list[str]) -> bool:
    """True for the names of a published `.pth`, False for those of transformers."""
    return "token_embedding.weight" in names


def vae_to_diffusers(name: str, *, res_blocks: int) -> str | None:
    """The diffusers name of a published one; `res_blocks` is the encoder's count a level (2)."""
    match = _SIDE_NAME.fullmatch(name)
    if match is None:
        return _swapped(name, _TOP, 0)
    side, rest = match[1], match[2]
    nested = _NESTED.fullmatch(rest)
    if nested:
        level, way, index, leaf = int(nested[1]), nested[2], int(nested[3]), nested[4]
        if leaf.startswith(_SAMPLING):
            return f"{side}{way}_blocks.{level}.{way}sampler.{leaf}"
        inner = _swapped(leaf, _RESIDUAL, 0)
        return inner and f"{side}{way}_blocks.{level}.resnets.{index}.{inner}"
    flat = _FLAT.fullmatch(rest)
    if flat:
        way, index, leaf = flat[1], int(flat[2]), flat[3]
        samples = leaf.startswith(_SAMPLING)
        inner = leaf if samples else _swapped(leaf, _RESIDUAL, 0)
        if way == "down":
            return inner and f"{side}down_blocks.{index}.{inner}"
        level, place = divmod(index, res_blocks + 2)
        part = "upsamplers.0" if samples else f"resnets.{place}"
        return inner and f"{side}up_blocks.{level}.{part}.{inner}"
    changed = _swapped(rest, _SIDE, 0)
    if changed and changed.startswith("mid_block.resnets."):
        head, _, leaf = rest.partition(".")[2].partition(".")
        inner = _swapped(leaf, _RESIDUAL, 0)
        return inner and f"{side}mid_block.resnets.{int(head) // 2}.{inner}"
    return changed and side + changed


def vae_from_diffusers(name: str, *, res_blocks: int, nested: bool) -> str | None:
    """The published name of a diffusers one, in the nested form of 2.2 or the flat one of 2.1."""
    match = _SIDE_NAME.fullmatch(name)
    if match is None:
        return _swapped(name, _TOP, 1)
    side, rest = match[1], match[2]
    if nested:
        place = _LIBRARY_NESTED.fullmatch(rest)
        if place:
            way, level, index, leaf = place[1], place[2], place[3], place[4]
            last = res_blocks if way == "down" else res_blocks + 1
            inner = leaf if index is None else _swapped(leaf, _RESIDUAL, 1)
            here = last if index is None else index
            return inner and f"{side}{way}samples.{level}.{way}samples.{here}.{inner}"
    else:
        down, up = _LIBRARY_DOWN.fullmatch(rest), _LIBRARY_UP.fullmatch(rest)
        if down:
            leaf = down[2]
            inner = leaf if leaf.startswith(_SAMPLING) else _swapped(leaf, _RESIDUAL, 1)
            return inner and f"{side}downsamples.{down[1]}.{inner}"
        if up:
            inner = up[3] if up[2] is None else _swapped(up[3], _RESIDUAL, 1)
            here = int(up[1]) * (res_blocks + 2) + (res_blocks + 1 if up[2] is None else int(up[2]))
            return inner and f"{side}upsamples.{here}.{inner}"
    middle = re.fullmatch(r"mid_block\.resnets\.(\d+)\.(.+)", rest)
    if middle:
        inner = _swapped(middle[2], _RESIDUAL, 1)
        return inner and f"{side}middle.{2 * int(middle[1])}.{inner}"
    changed = _swapped(rest, _SIDE, 1)
    return changed and side + changed


def text_to_transformers(name: str) -> str | None:
    """The transformers name of a published text encoder tensor."""
    match = _TEXT_NAME.fullmatch(name)
    if match is None:
        return _swapped(name, _TEXT_TOP, 0)
    inner = _swapped(match[2], _TEXT_BLOCK, 0)
    return inner and f"encoder.block.{match[1]}.{inner}"


def text_from_transformers(name: str) -> str | None:
    """The published name of a transformers text encoder tensor."""
    match = _TEXT_NAME.fullmatch(name)
    if match is None:
        return _swapped(name, _TEXT_TOP, 1)
    inner = _swapped(match[2], (_TEXT_BLOCK[2], *_TEXT_BLOCK), 1)
    return inner and f"blocks.{match[1]}.{inner}"


def _swapped(name: str, table: tuple[tuple[str, str], ...], source: int) -> str | None:
    for row in table:
        if name.startswith(row[source]):
            return row[1 - source] + name[len(row[source]) :]
    return None
