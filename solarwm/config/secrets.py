"""Finds credentials in a config, by the name of the key or inside a URL. Their values go nowhere."""

from __future__ import annotations

import re
from typing import Any

from solarwm.config.document import Document, Path, dotted
from solarwm.config.plain import is_list, is_mapping

_EXACT = frozenset(
    [
        "access_key",
        "access_token",
        "account_key",
        "api_key",
        "apikey",
        "auth",
        "authorization",
        "bearer",
        "connection_string",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "pwd",
        "secret",
        "secret_key",
        "token",
    ]
)
_ENDINGS = (
    "_access_key",
    "_access_token",
    "_account_key",
    "_api_key",
    "_apikey",
    "_authorization",
    "_bearer",
    "_connection_string",
    "_credential",
    "_credentials",
    "_passphrase",
    "_passwd",
    "_password",
    "_private_key",
    "_secret",
    "_secret_key",
    "_token",
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/\s@:]*:[^/\s@]+|[^/\s@:]{8,})@")
_QUERY = re.compile(
    r"[?&](?:access_token|api_key|apikey|auth|authorization|awsaccesskeyid|key|password|secret|sig|signature|"
    r"token|x-amz-credential|x-amz-security-token|x-amz-signature|x-goog-credential|x-goog-signature)=[^&\s]",
    re.IGNORECASE,
)


def names_secret(key: str) -> bool:
    """True when a key says that its value is a credential: `token`, `hf_token`, `awsSecretAccessKey`."""
    name = _CAMEL.sub("_", key.strip()).lower().replace("-", "_").replace(" ", "_")
    return name in _EXACT or name.endswith(_ENDINGS)


def holds_secret(text: str) -> bool:
    """True when a text is or contains a URL with credentials in it."""
    return "://" in text and bool(_USER_INFO.search(text) or _QUERY.search(text))


def remove(document: Document) -> None:
    """Take every credential out of the values and keep one fault for each; the value is not repeated."""
    document.values = _clean(document, document.values, ())


def _clean(document: Document, value: Any, path: Path) -> Any:
    if is_mapping(value):
        kept: dict[str, Any] = {}
        for key, item in value.items():
            here = (*path, key)
            if names_secret(key) and item not in (None, ""):
                document.fault(
                    "config.secret",
                    here,
                    f"{dotted(here)} holds a secret",
                    why="configs are copied into run directories and manifests",
                    fixes=[f"remove it; {key}_file may name a file that holds it"],
                )
                continue
            kept[key] = _clean(document, item, here)
        return kept
    if is_list(value):
        return [_clean(document, item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, str) and holds_secret(value):
        document.fault(
            "config.secret",
            path,
            f"{dotted(path)} is a URL with credentials in it",
            why="configs are copied into run directories and manifests",
            fixes=["remove user, password and signature from the URL"],
        )
        return ""
    return value
