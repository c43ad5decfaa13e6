"""Credentials that can be told from ordinary text by their shape, and a text without them."""

from __future__ import annotations

import re

HIDDEN = "<hidden>"

_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|"
    r"hf_[A-Za-z0-9]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|"
    r"sk-[A-Za-z0-9_-]{20,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|"
    r"npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|"
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----)"
)
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/\s@:]*:[^/\s@]+|[^/\s@:]{8,})@")
_QUERY = re.compile(
    r"(?:[?&]|(?<![A-Za-z0-9_.-]))(?:access_token|api_key|apikey|awsaccesskeyid|client_secret|password|"
    r"x-amz-credential|x-amz-security-token|x-amz-signature|x-goog-credential|x-goog-signature)=[^&\s\"']+"
    r"|[?&](?:auth|authorization|key|secret|sig|signature|token)=[^&\s\"']+",
    re.IGNORECASE,
)
_KINDS = (_TOKENS, _USER_INFO, _QUERY)


def holds_secret(text: str) -> bool:
    """True when a text is or contains a credential: a known kind of token, a private key, a URL with
    user and password, a query with a key or a signature."""
    return any(kind.search(text) for kind in _KINDS)


def redacted(text: str) -> str:
    """The text with every credential in it replaced by `<hidden>`."""
    for kind in _KINDS:
        text = kind.sub(HIDDEN, text)
    return text
