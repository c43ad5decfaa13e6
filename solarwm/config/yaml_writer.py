"""YAML that this package reads back as it was: text that a plain word would not stand for is quoted."""

from __future__ import annotations

import re
from typing import Any

import yaml

from solarwm.config.yaml_reader import WORDS

_NO_TEXT = re.compile("|".join(f"(?:{pattern})" for _, pattern, _ in WORDS))


class _Dumper(yaml.SafeDumper):
    """PyYAML quotes what YAML 1.1 reads otherwise; `1e5` is text to it, a number to us."""


def _text(dumper: Any, text: str) -> Any:
    style = "'" if _NO_TEXT.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def written(values: Any) -> str:
    """`values` as YAML in blocks, keys in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
