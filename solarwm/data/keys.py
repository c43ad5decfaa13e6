"""Relative keys: the only way an index may name a shard or a member."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def relative_key_fault(text: str) -> str | None:
    """Why `text` is no relative key, in words; None when it is one.

    A relative key is not empty, has no backslash, no leading slash, no URL scheme and no empty, `.`
    or `..` segment.
    """
    if _PLAIN.match(text):
        return None
    if not text:
        return "it is empty"
    if "\\" in text:
        return "it has a backslash"
    if text[0] == "/":
        return "it is absolute"
    if _SCHEME.match(text):
        return "it looks like a URL"
    if "\x00" in text:
        return "it has a NUL character"
    for segment in text.split("/"):
        if segment == "..":
            return "it climbs out of the root with `..`"
        if segment in ("", "."):
            return "it has an empty or `.` segment"
    return None
