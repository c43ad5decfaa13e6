"""The UMT5 text encoder from a published `.pth` or a transformers folder.

Shapes: B prompts, T text tokens, D text width.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solarwm.backbones.wan22_core.codec_names import is_published_text, text_to_transformers
from solarwm.backbones.weight_files import TensorSource, fill
from solarwm.errors.types import SolarError


class UMT5Text:
    """Prompts to states: cleaned, tokenised with special tokens, rows past the prompt zero. fp32."""

    def __init__(
        self, weights: Path, tokenizer: Path, *, length: int, device: torch.device
    ) -> None:
        self.length = length
        self._weights = weights
        self._tokenizer_path = tokenizer
        self._device = device
        self._model: Any = None
        self._tokenizer: Any = None

    @torch.no_grad()
    def encode(self, prompts: Sequence[str]) -> Tensor:
        """States [B,T,D] fp32 on the encoder's device."""
        self._open()
        tokens = self._tokenizer(
            [cleaned(prompt) for prompt in prompts],
            padding="max_length",
            truncation=True,
            max_length=self.length,
            add_special_tokens=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        mask = tokens["attention_mask"].to(self._device)
        ids = tokens["input_ids"].to(self._device)
        states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states.float() * mask[..., None]

    def _open(self) -> None:
        if self._model is None:
            self._tokenizer = open_tokenizer(self._tokenizer_path)
            self._model = open_umt5(self._weights).to(self._device)


def cleaned(prompt: str) -> str:
    """Broken encodings mended, quotes and wide letters made plain (ftfy), HTML entities resolved twice,
    every run of white space one blank: as published."""
    import ftfy

    return " ".join(html.unescape(html.unescape(ftfy.fix_text(prompt))).split())


def open_umt5(path: Path) -> Any:
    """`UMT5EncoderModel` of a published `.pth` or a transformers folder, on the CPU, fp32, eval.

    A published file says its sizes by its shapes. Raises `weights.*` (exit 3).
    """
    from transformers import UMT5Config, UMT5EncoderModel

    source = TensorSource.open(path, "live")
    if is_published_text(source.names()):
        config, rename = UMT5Config(**_arguments(source, path)), text_to_transformers
    else:
        config, rename = _written_config(path), lambda name: name
    with torch.device("meta"):
        model = UMT5EncoderModel(config)
    fill(model, path, source, rename)
    model.tie_weights()
    return model.float().eval().requires_grad_(False)


def open_tokenizer(path: Path) -> Any:
    """The tokenizer of a local folder; nothing is fetched. Raises `weights.missing` (exit 3)."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError) as error:
        raise SolarError(
            "weights.missing",
            "the tokenizer cannot be read",
            where=str(path),
            why=str(error).strip().splitlines()[0][:300],
        ) from error


def _arguments(source: TensorSource, path: Path) -> dict[str, Any]:
    shapes = source.shapes()
    try:
        vocabulary, width = shapes["token_embedding.weight"]
        inner = shapes["blocks.0.attn.q.weight"][0]
        buckets, heads = shapes["blocks.0.pos_embedding.embedding.weight"]
        hidden = shapes["blocks.0.ffn.fc1.weight"][0]
    except (KeyError, ValueError, IndexError) as error:
        raise SolarError(
            "weights.no-match",
            f"{path.name} is no UMT5 encoder",
            where=str(path),
            why=f"Expected the published encoder, not found: {error}.",
        ) from error
    layers = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "d_kv": inner // heads,
        "d_ff": hidden,
        "num_layers": layers,
        "num_heads": heads,
        "relative_attention_num_buckets": buckets,
    }


def _written_config(path: Path) -> Any:
    from transformers import UMT5Config

    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").is_file():
        raise SolarError(
            "weights.missing",
            "the text encoder's config.json is not there",
            where=str(folder / "config.json"),
            why="Weights under transformers names need the config.json beside them.",
        )
    return UMT5Config.from_pretrained(str(folder), local_files_only=True)
