"""Credentials that can be told from ordinary text by their shape, and a text without them."""

from __future__ import annotations

import re

HIDDEN = "<hidden>"

# Repetitions that a later part could refuse are bounded: a long text must not take quadratic time.
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[oprsu]_[A-Za-z0-9]{10,}|github_pat_[A-Za-z0-9_]{10,}|glpat-[A-Za-z0-9_-]{16,}|"
    r"hf_(?:[A-Za-z0-9]{20,}|(?=[a-zA-Z]*[0-9])(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{10,})|"
    r"(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|"
    r"sk-(?:(?=[A-Za-z0-9_-]{0,200}(?:[A-Za-z][0-9]|[0-9][A-Za-z]))[A-Za-z0-9_-]{20,}"
    r"|(?:[A-Za-z0-9]+-){0,3}[A-Za-z0-9_]{16,})|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|"
    r"npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|"
    r"eyJ[A-Za-z0-9_-]{8,999}\.[A-Za-z0-9_-]{8,9999}\.[A-Za-z0-9_-]{8,}|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|"
    r"(?i:bearer|basic)[ \t]+[A-Za-z0-9._~+/=-]{16,})"
)
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://(?:[^/\s@:]*:[^/\s@]+|[^/\s@:]{8,})@")
_QUERY = re.compile(
    r"(?:[?&]|(?<![A-Za-z0-9]))(?:[A-Za-z0-9]{1,40}[_-]){0,6}"
    r"(?:access_token|api[_-]?key|awsaccesskeyid|client_secret|passwd|password|secret_access_key|secret_key|"
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
