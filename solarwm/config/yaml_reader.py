"""YAML text to plain values with line marks.

A plain word means what YAML 1.2 says: `yes`, `no`, `on` and `off` are text, `1e-4` is a number. A number
that YAML 1.1 reads differently (`010`, `1_000`, `1:30`, `0b11`) is refused, never taken as another one.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any, ClassVar, cast

import yaml

from solarwm.config.document import Path, dotted
from solarwm.config.plain import is_mapping
from solarwm.errors.types import SolarError

MAX_DEPTH = 40
MAX_VALUES = 20_000
_LARGEST = 2**63
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({f"{_TAG}str", f"{_TAG}value"})
_AMBIGUOUS = "!ambiguous"
"""The tag of a plain number that readers of YAML take differently."""
WORDS: tuple[tuple[str, str, str], ...] = (
    (f"{_TAG}null", r"~|null|Null|NULL|", "~nN\0"),
    (f"{_TAG}bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (f"{_TAG}int", r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)", "-+0123456789"),
    (
        f"{_TAG}float",
        r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
        r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    (
        _AMBIGUOUS,
        r"[-+]?(?:0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])*"
        r"|[0-9][0-9_]*(?::[0-5]?[0-9])*\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
        r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?)",
        "-+.0123456789",
    ),
    (
        f"{_TAG}timestamp",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}"
        r":[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?",
        "0123456789",
    ),
    (f"{_TAG}merge", "<<", "<"),
)
"""What plain words stand for, first match wins: tag, pattern, first characters."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """The C parser with our meaning of plain words."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _pattern, _first in WORDS:
    _letters = [letter.replace("\0", "") for letter in _first]
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _letters)
_SCALARS = yaml.constructor.SafeConstructor()


class Reading:
    """What one text gave: values, marks, and the faults on the way."""

    __slots__ = ("_base", "_count", "faults", "lines", "source", "values")

    def __init__(self, source: str, base: Path = ()) -> None:
        self.source = source
        self._base = base
        """Where the values stand in the config."""
        self.values: Any = None
        self.lines: dict[Path, tuple[int, int]] = {}
        self.faults: list[SolarError] = []
        self._count = 0

    def read(self, text: str) -> None:
        """Parse `text`; raises one `config.syntax` or `config.too-complex` where nothing can be read."""
        try:
            node: Any = cast("Any", yaml).compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except (yaml.YAMLError, ValueError):
            raise SolarError(
                "config.syntax",
                "the text holds a character that YAML does not allow",
                where=self.source,
                fixes=["remove control characters from the file"],
            ) from None
        except RecursionError:
            raise self._too_complex(None, "nesting is too deep") from None
        if node is not None:
            self.values = self._value(node, ())

    def _value(self, node: Any, path: Path) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._too_complex(
                node, f"more than {MAX_VALUES} values after aliases are expanded"
            )
        if len(path) > MAX_DEPTH:
            raise self._too_complex(node, f"nesting deeper than {MAX_DEPTH}")
        if isinstance(node, yaml.MappingNode):
            if node.tag != f"{_TAG}map":
                return self._refuse(node, path)
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != f"{_TAG}seq":
                return self._refuse(node, path)
            items: list[Any] = []
            for index, item in enumerate(node.value):
                here = (*path, index)
                self.lines[here] = _mark(item)
                items.append(self._value(item, here))
            return items
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[Any] = []
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged.append(value_node)
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _TEXT_TAGS:
                self._fault(
                    "config.syntax",
                    key_node,
                    path,
                    "a key is not text",
                    why="YAML reads numbers, dates, true, false and null as other types",
                    fixes=["put the key in quotes"],
                )
                continue
            key = key_node.value
            here = (*path, key)
            if key in first:
                self._fault(
                    "config.duplicate-key",
                    key_node,
                    here,
                    f"{self._name(here)} is written twice",
                    why=f"it already stands in line {first[key]}",
                    fixes=["keep one of the two"],
                )
                continue
            first[key] = key_node.start_mark.line + 1
            self.lines[here] = _mark(key_node)
            result[key] = self._value(value_node, here)
        for value_node in merged:
            sources = (
                value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            )
            for source in sources:
                if not isinstance(source, yaml.MappingNode):
                    self._fault(
                        "config.syntax",
                        value_node,
                        path,
                        "<< takes a mapping or a list of mappings",
                        fixes=["write <<: *NAME, where &NAME marks a mapping"],
                    )
                    continue
                inner = self._value(source, path)
                for key, value in inner.items() if is_mapping(inner) else ():
                    result.setdefault(key, value)
        return result

    def _scalar(self, node: Any, path: Path) -> Any:
        tag, text = node.tag, node.value
        try:
            if tag in _TEXT_TAGS:
                return self._text(node, path, text)
            if tag == f"{_TAG}null":
                return None
            if tag == f"{_TAG}bool":
                return _SCALARS.construct_yaml_bool(node)
            if tag == f"{_TAG}merge":
                return self._text(node, path, text)
            if tag == _AMBIGUOUS:
                return self._ambiguous(node, path, text)
            if tag == f"{_TAG}int":
                number = _SCALARS.construct_yaml_int(node)
                if abs(number) >= _LARGEST:
                    self._fault(
                        "config.value",
                        node,
                        path,
                        f"{self._name(path)} is too large a number",
                        fixes=["write a number below 2**63"],
                    )
                    return 0
                return number
            if tag == f"{_TAG}float":
                value = float(_SCALARS.construct_yaml_float(node))
                if not math.isfinite(value):
                    self._fault(
                        "config.value",
                        node,
                        path,
                        f"{self._name(path)} is not a finite number",
                        why="NaN and infinity have no JSON form and no meaning in a config",
                        fixes=["write a finite number, or null where the field takes it"],
                    )
                    return 0.0
                return value
        except (ValueError, KeyError, OverflowError):
            kind = tag.removeprefix(_TAG)
            self._fault(
                "config.value",
                node,
                path,
                f"{self._name(path)} cannot be read as {kind}",
                fixes=["put it in quotes if text is meant"],
            )
            return None
        return self._refuse(node, path)

    def _ambiguous(self, node: Any, path: Path, text: str) -> int:
        value: Any = None
        with suppress(ValueError):
            value = (
                _SCALARS.construct_yaml_float(node)
                if "." in text or "e" in text.lower()
                else (_SCALARS.construct_yaml_int(node))
            )
        read = f"some readers of YAML take it as {value}, others as " if value is not None else ""
        other = int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else "text"
        self._fault(
            "config.value",
            node,
            path,
            f"{self._name(path)} is a number that readers of YAML take differently",
            why=f"{read}{other}" if read else "",
            fixes=["write a plain decimal number", "put it in quotes if text is meant"],
        )
        return 0

    def _name(self, path: Path) -> str:
        return dotted((*self._base, *path)) or "the config"

    def _text(self, node: Any, path: Path, text: str) -> str:
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            self._fault(
                "config.value",
                node,
                path,
                f"{self._name(path)} holds a character no file can carry",
                fixes=["remove NUL and lone surrogates from the text"],
            )
            return ""
        return text

    def _refuse(self, node: Any, path: Path) -> None:
        kind = node.tag.removeprefix(_TAG)
        known = {"timestamp": "a date", "binary": "binary data", "set": "a set"}
        what = known.get(kind, "a tagged value")
        self._fault(
            "config.type",
            node,
            path,
            f"{self._name(path)} is {what}; a config holds text, numbers, booleans, null, "
            "lists and mappings",
            fixes=["put the value in quotes if text is meant"],
        )

    def _fault(
        self,
        code: str,
        node: Any,
        path: Path,
        headline: str,
        *,
        why: str = "",
        fixes: list[str] | None = None,
    ) -> None:
        self.faults.append(
            SolarError(
                code,
                headline,
                where=self._place(node),
                why=why,
                fixes=fixes or (),
                context={"path": dotted((*self._base, *path))},
            )
        )

    def _place(self, node: Any) -> str:
        line, column = _mark(node)
        return f"{self.source}:{line}:{column}" if not self.source.startswith("--") else self.source

    def _too_complex(self, node: Any | None, why: str) -> SolarError:
        return SolarError(
            "config.too-complex",
            "the config is nested or expanded beyond reason",
            where=self._place(node) if node is not None else self.source,
            why=why,
        )

    def _syntax(self, error: yaml.MarkedYAMLError) -> SolarError:
        problem = " ".join(part for part in (error.context, error.problem) if part)
        if "nesting depth" in problem:
            return self._too_complex(None, "nesting is too deep")
        mark = error.problem_mark or error.context_mark
        place = self.source
        if mark is not None and not place.startswith("--"):
            place = f"{place}:{mark.line + 1}:{mark.column + 1}"
        # Some messages of the parser quote what they read: only their plain words are repeated.
        words = re.sub(r"""(['"`]).*?\1""", "...", problem)
        return SolarError("config.syntax", "the text is not valid YAML", where=place, why=words)


def _mark(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
