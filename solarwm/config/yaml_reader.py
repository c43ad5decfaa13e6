"""YAML text to plain values with line marks: the 1.1 rules of PyYAML, without their traps."""

from __future__ import annotations

import math
import re
from typing import Any, cast

import yaml

from solarwm.config.document import Path, dotted
from solarwm.config.plain import is_mapping
from solarwm.errors.types import SolarError

MAX_DEPTH = 40
MAX_VALUES = 20_000
_LARGEST = 2**63
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+")
_AMBIGUOUS = re.compile(r"[-+]?(?:0[0-9_]+|[0-9][0-9_]*(?::[0-9_]+)+(?:\.[0-9_]*)?)")
"""Octal by a leading 0, and sexagesimal: numbers that YAML 1.1 and 1.2 read differently."""
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({f"{_TAG}str", f"{_TAG}value"})

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """The C parser with exponent numbers such as `1e-4` resolved as floats."""


_Loader.add_implicit_resolver(f"{_TAG}float", _EXPONENT, list("-+.0123456789"))
_SCALARS = yaml.constructor.SafeConstructor()


class Reading:
    """What one text gave: values, marks, and the faults on the way."""

    __slots__ = ("_count", "faults", "lines", "source", "values")

    def __init__(self, source: str) -> None:
        self.source = source
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
                    why="YAML reads words such as on, yes, no and numbers as other types",
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
                    f"{dotted(here)} is written twice",
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
            if tag in (f"{_TAG}int", f"{_TAG}float") and _AMBIGUOUS.fullmatch(text):
                self._fault(
                    "config.value",
                    node,
                    path,
                    f"{dotted(path)} is a number that readers of YAML take differently",
                    why="a leading 0 means octal to some, and 1:30 is 90 to some",
                    fixes=["write a plain decimal number", "put it in quotes if text is meant"],
                )
                return 0
            if tag == f"{_TAG}int":
                number = _SCALARS.construct_yaml_int(node)
                if abs(number) >= _LARGEST:
                    self._fault("config.value", node, path, f"{dotted(path)} is too large a number")
                    return 0
                return number
            if tag == f"{_TAG}float":
                value = float(_SCALARS.construct_yaml_float(node))
                if not math.isfinite(value):
                    self._fault(
                        "config.value",
                        node,
                        path,
                        f"{dotted(path)} is not a finite number",
                        why="NaN and infinity have no JSON form and no meaning in a config",
                    )
                    return 0.0
                return value
        except (ValueError, KeyError, OverflowError):
            kind = tag.removeprefix(_TAG)
            self._fault("config.value", node, path, f"{dotted(path)} cannot be read as {kind}")
            return None
        return self._refuse(node, path)

    def _text(self, node: Any, path: Path, text: str) -> str:
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            self._fault(
                "config.value", node, path, f"{dotted(path)} holds a character no file can carry"
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
            f"{dotted(path) or 'the config'} is {what}; a config holds text, numbers, booleans, null, "
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
                context={"path": dotted(path)},
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
