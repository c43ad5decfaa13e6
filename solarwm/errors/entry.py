"""One kind of fault, as the catalogue holds it."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """The exit code of a kind of fault and the text that explains it."""

    exit_code: int
    title: str
    explanation: str
