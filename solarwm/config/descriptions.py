"""The docstrings under the fields of the models, read from the source only when somebody asks."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from pydantic import BaseModel


def describe(model: type[BaseModel]) -> dict[str, str]:
    """What each field of a model means; inherited texts included."""
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            texts |= _of_module(owner.__module__).get(owner.__name__, {})
    return texts


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) is None:
        return {}
    tree = ast.parse(inspect.getsource(module))
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = following.value.value
            if isinstance(text, str):
                texts[statement.target.id] = inspect.cleandoc(text)
    return texts
