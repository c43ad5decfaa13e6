"""The text of the unconditional branch: an encoded negative prompt from a file, or a prompt encoded
at the start.

Shapes: T text tokens, D text width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solarwm.backbones.seam import Backbone
from solarwm.errors.types import SolarError

KEY = "negative_prompt_embeds"


def negative_text(resolved: Any, backbone: Backbone, device: torch.device) -> Tensor:
    """States [1,T,D] fp32 on the CPU, rows past the prompt zero.

    Raises `weights.*` (exit 3) for a file that is not an encoded prompt of this model's width.
    """
    place = embedding_path(resolved)
    if place is not None:
        dims = backbone.profile.dims
        return read_embedding(place, tokens=dims.text_len, width=dims.text_dim)
    model = resolved.config.model
    codec = backbone.codec(
        base_path=Path(model.base_path) if model.base_path else None,
        assets=model.assets,
        device=device,
    )
    prompt = getattr(resolved.config.train, "negative_prompt", None) or ""
    return codec.encode_text([prompt]).float().cpu()


def embedding_path(resolved: Any) -> Path | None:
    """The file of the encoded negative prompt, below the base model; None where none is named or a
    small profile has no base model."""
    name = getattr(resolved.config.train, "anyflow_negative_embedding", None)
    base = resolved.config.model.base_path
    return Path(base) / name if name and base else None


def read_embedding(path: Path, *, tokens: int, width: int) -> Tensor:
    """The states under `negative_prompt_embeds`, [L,D] or [1,L,D], as [1,T,D] fp32."""
    try:
        document = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError) as cause:
        raise _unusable(path, f"it cannot be read: {str(cause).splitlines()[0][:200]}") from cause
    states = document.get(KEY) if isinstance(document, dict) else None
    if not isinstance(states, Tensor):
        raise _unusable(path, f"it has no tensor {KEY!r}")
    if states.ndim == 3 and len(states) == 1:
        states = states[0]
    if states.ndim != 2 or states.shape[1] != width:
        raise _unusable(path, f"expected [L, {width}], found {list(states.shape)}")
    padded = torch.zeros(1, tokens, width)
    length = min(tokens, len(states))
    padded[0, :length] = states[:length].float()
    return padded


def _unusable(path: Path, why: str) -> SolarError:
    return SolarError(
        "weights.unreadable",
        "the encoded negative prompt cannot be used",
        where=str(path),
        why=why,
        fixes=["--set train.anyflow_fuse_guidance_scale=1.0", "solarwm data encode-negative"],
    )
