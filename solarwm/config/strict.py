"""The base of every section model, and the value types that sections share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

Item = TypeVar("Item")


class Section(BaseModel):
    """One mapping of a config: frozen, no unknown keys, no text for numbers, no numbers for
    switches."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        allow_inf_nan=False,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    if TYPE_CHECKING:
        # A shared section type also stands for the family's own, which has further fields.
        def __getattr__(self, name: str) -> Any: ...


def section() -> Any:
    """The default of a section field: an empty mapping, filled in when a config is read.

    An instance as default would build the validator of that section alone, at import.
    """
    return Field(default_factory=dict, validate_default=True)


def _non_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or blank")
    return text


def _relative_key(key: str) -> str:
    """A POSIX key below a root: no scheme, no backslash, no empty, `.` or `..` segment."""
    if "://" in key or "\\" in key or key.startswith("/"):
        raise ValueError(
            "must be a relative POSIX key below the index root, such as train-index.jsonl.gz"
        )
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise ValueError("must not have empty, '.' or '..' segments")
    return key


def _component(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(
            "must start with a letter or digit and hold only letters, digits, '.', '_' and '-'"
        )
    return name


def _pass_name(name: str) -> str:
    if not name.strip() or name in (".", "..") or any(char in name for char in "/\\\0"):
        raise ValueError("must be one non-empty path component without slashes")
    return name


Text = Annotated[str, AfterValidator(_non_blank)]
"""Text that is not blank."""
RelativeKey = Annotated[str, AfterValidator(_relative_key)]
"""A relative POSIX key below the index root."""
Component = Annotated[str, AfterValidator(_component)]
"""A portable single path component."""
PassName = Annotated[str, AfterValidator(_pass_name)]
"""The name of a validation pass: one path component."""
Listed = Annotated[tuple[Item, ...], Strict(False)]
"""A YAML list, kept as a tuple."""
Pair = Annotated[tuple[Item, Item], Strict(False)]
"""A YAML list of two."""

PositiveInt = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]

Dtype = Literal["float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda", "npu", "xpu", "mps"]
"""Device by name; `auto` takes the first accelerator that is present, else the CPU."""
Weights = Literal["live", "ema"]
"""`live` are the weights the optimizer changes, `ema` their running average."""
