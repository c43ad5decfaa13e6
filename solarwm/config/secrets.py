"""Finds credentials in a config, by the name of the key or by their shape. They are repeated nowhere."""

from __future__ import annotations

import re
from typing import Any

from solarwm.config.document import Document, Path, dotted
from solarwm.config.plain import is_list, is_mapping
from solarwm.errors.redaction import HIDDEN, holds_secret

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
COPIED = "configs are copied into run directories and manifests"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def names_secret(key: str) -> bool:
    """True when a key says that its value is a credential: `token`, `hf_token`, `awsSecretAccessKey`."""
    name = _CAMEL.sub("_", key.strip()).lower().replace("-", "_").replace(" ", "_")
    return name in _EXACT or name.endswith(_ENDINGS)


def remove(document: Document) -> None:
    """Take every credential out of the values and keep one fault for each; the value is not repeated."""
    document.values = _clean(document, document.values, ())


def _clean(document: Document, value: Any, path: Path) -> Any:
    if is_mapping(value):
        kept: dict[str, Any] = {}
        for key, item in value.items():
            here = (*path, key)
            if holds_secret(key):
                document.fault(
                    "config.secret",
                    (*path, HIDDEN),
                    f"a key of {dotted(path) or 'the top level'} is a credential",
                    why=COPIED,
                    fixes=["remove the key, and revoke the credential: it was in a config"],
                    where=document.place(here),
                )
                continue
            if names_secret(key) and item not in (None, ""):
                document.fault(
                    "config.secret",
                    here,
                    f"{dotted(here)} holds a secret",
                    why=COPIED,
                    fixes=["remove it; the programs that need it read it from their environment"],
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
            f"{dotted(path)} holds a credential",
            why=COPIED,
            fixes=["remove it: tokens, keys, and user, password or signature of a URL"],
        )
        return ""
    return value
