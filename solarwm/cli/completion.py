"""Answers a Tab in bash, zsh and fish from a table, without importing the program or Typer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "_SOLARWM_COMPLETE"
TABLE = Path(__file__).with_name("completion.json")
"""Commands, options and words; written by `make docs`."""

Words = list[tuple[str, str]]
"""Candidates with a line of help each."""


def answer(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """What to print and the exit code for a completion request; None when there is none for us."""
    asked, _, shell = environ.get(VARIABLE, "").partition("_")
    if asked != "complete" or shell not in ("bash", "zsh", "fish"):
        return None
    given, incomplete = _typed(environ, shell)
    found = candidates(json.loads(TABLE.read_bytes()), given, incomplete)
    if shell == "bash":
        return _lines(word for word, _ in found), 0
    if shell == "zsh":
        return (f"_arguments '*: :(({_zsh(found)}))'" if found else "_files") + "\n", 0
    if environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return "", int(not found)
    return _lines(f"{word}\t{text}" if text else word for word, text in found), 0


def candidates(table: dict[str, Any], given: list[str], incomplete: str) -> Words:
    """The words that may follow `given` and begin with `incomplete`; none where a file name fits."""
    commands: dict[str, dict[str, Any]] = table["commands"]
    path = ""
    waiting: dict[str, Any] | None = None
    for word in given:
        if waiting is not None:
            waiting = None
            continue
        option = commands[path]["options"].get(word)
        if option is not None:
            waiting = option if option["takes"] else None
        elif word in commands[path]["commands"]:
            path = f"{path} {word}".strip()
    here = commands[path]
    if waiting is not None:
        found = _values(table, waiting["takes"])
    elif incomplete.startswith("-"):
        found = [(name, option["help"]) for name, option in here["options"].items()]
    elif here["commands"]:
        found = list(here["commands"].items())
    else:
        found = _values(table, here["argument"])
    return [(word, text) for word, text in found if word.startswith(incomplete)]


def _values(table: dict[str, Any], kind: str) -> Words:
    return [(word, "") for word in table["words"].get(kind, ())]


def _typed(environ: Mapping[str, str], shell: str) -> tuple[list[str], str]:
    if shell == "bash":
        words = _split(environ.get("COMP_WORDS", ""))
        position = environ.get("COMP_CWORD", "")
        at = int(position) if position.isdigit() else len(words)
        return words[1:at], words[at] if at < len(words) else ""
    text = environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(text)[1:]
    if words and not text.endswith(" "):
        return words[:-1], words[-1]
    return words, ""


def _split(text: str) -> list[str]:
    """Words of a command line that may not be finished: quotes and backslashes are taken off."""
    found = re.findall(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"?|'[^']*'?)+""", text)
    return [re.sub(r"""\\(.)|["']""", r"\1", word) for word in found]


def _lines(words: Any) -> str:
    return "".join(f"{word}\n" for word in words)


def _zsh(found: Words) -> str:
    def quoted(text: str) -> str:
        for old, new in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\\\:")):
            text = text.replace(old, new)
        return f'"{text}"'

    return "\n".join(
        f"{quoted(word)}:{quoted(text)}" if text else quoted(word) for word, text in found
    )
