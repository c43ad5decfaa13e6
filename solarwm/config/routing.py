"""Chooses the route of a config from its plain values, before any model is built."""

from __future__ import annotations

from typing import Any

from solarwm.config.document import Document, dotted, get, shown
from solarwm.config.plain import is_mapping
from solarwm.errors.types import SolarError
from solarwm.routes import compatibility
from solarwm.routes.compatibility import Ask
from solarwm.routes.spec import Route
from solarwm.routes.table import ROOMS, canonical_family, preencode_route

SCHEMA = "solarwm.run.v1"
ACTIONS = ("train", "infer", "preencode")
SECTIONS = (
    "schema",
    "action",
    "name",
    "model",
    "data",
    "distributed",
    "train",
    "validation",
    "checkpoint",
    "preencode",
    "inference",
    "runtime",
    "metadata",
)


def choose(document: Document) -> Route | None:
    """The route of the config; faults are kept in the document.

    After a fault the nearest route of the family is given, so that the rest of the file can be checked too;
    None when not even the family is known.
    """
    action = _action(document)
    _schema(document)
    family = _family(document)
    if family is None:
        return None
    if action == "preencode":
        return preencode_route(family)
    ask = _ask(document, family)
    if ask is None:
        return compatibility.nearest(
            Ask(family=family, stage=None, causal_mode=None, objective=None, variant=None)
        )
    try:
        row = compatibility.require(ask)
    except SolarError as error:
        document.fault(
            error.code,
            ("train", "stage"),
            error.headline,
            why=error.why,
            fixes=error.fixes,
            legal=error.context["legal"],
        )
        return compatibility.nearest(ask)
    if ask.objective != row.objective:
        document.values["train"]["objective"] = row.objective
    return row


def _schema(document: Document) -> None:
    value = document.values.get("schema")
    if value != SCHEMA:
        missing = "schema" not in document.values
        document.fault(
            "config.missing-key" if missing else "config.format",
            ("schema",),
            f"schema must be {SCHEMA}"
            + (", and it is missing" if missing else f", not {shown(value)}"),
            fixes=[f"schema: {SCHEMA}"],
        )
        document.values["schema"] = SCHEMA


def _action(document: Document) -> str:
    value = document.values.get("action")
    if value in ACTIONS:
        return str(value)
    missing = "action" not in document.values
    document.fault(
        "config.missing-key" if missing else "config.value",
        ("action",),
        f"action must be one of {', '.join(ACTIONS)}"
        + ("" if missing else f", not {shown(value)}"),
        fixes=["action: train"],
    )
    document.values["action"] = "train"
    return "train"


def _family(document: Document) -> str | None:
    model = document.values.get("model")
    if not is_mapping(model):
        missing = model is None
        document.fault(
            "config.missing-key" if missing else "config.type",
            ("model",),
            "the section model is missing"
            if missing
            else f"model must be a mapping, not {shown(model)}",
            fixes=["model: {family: wan22_ti2v_5b, ...}"],
        )
        return None
    spelling = model.get("family")
    family = canonical_family(spelling) if isinstance(spelling, str) else None
    if family is not None:
        model["family"] = family
        return family
    path = ("model", "family")
    legal = ", ".join(ROOMS)
    if "family" not in model:
        document.fault(
            "config.missing-key",
            path,
            f"model.family is missing; one of {legal}",
            fixes=[f"--set model.family={name}" for name in ROOMS][:3],
        )
    elif not isinstance(spelling, str):
        document.fault(
            "config.type",
            path,
            f"model.family must be text, not {shown(spelling)}",
            why=f"known families: {legal}",
            fixes=[f"--set model.family={name}" for name in ROOMS][:3],
        )
    else:
        import difflib

        close = difflib.get_close_matches(spelling.lower(), list(ROOMS), n=1)
        document.fault(
            "config.value",
            path,
            f"model.family {shown(spelling)} is unknown",
            why=f"known families: {legal}",
            fixes=[f"--set model.family={name}" for name in close or ROOMS][:3],
        )
    return None


def _ask(document: Document, family: str) -> Ask | None:
    train = document.values.get("train")
    if not is_mapping(train):
        missing = train is None
        document.fault(
            "config.missing-key" if missing else "config.type",
            ("train",),
            "the section train is missing: it names the route"
            if missing
            else f"train must be a mapping, not {shown(train)}",
            fixes=["train: {stage: ..., causal_mode: ..., objective: ...}"],
        )
        return None
    if "stage" not in train and isinstance(get(document.values, "model", "stage"), str):
        train["stage"] = document.values["model"]["stage"]
    parts: dict[str, str | None] = {}
    wrong = False
    for name in ("stage", "causal_mode", "objective", "objective_variant"):
        value: Any = train.get(name)
        if value is not None and not isinstance(value, str):
            wrong = True
            path = ("train", name)
            document.fault(
                "config.type",
                path,
                f"{dotted(path)} must be text, not {shown(value)}",
                fixes=["solarwm config routes lists what runs"],
            )
        if value is None and name != "objective_variant":
            wrong = True
            document.fault(
                "config.missing-key",
                ("train", name),
                f"train.{name} is missing: it is part of the route",
                fixes=["solarwm config routes lists what runs"],
            )
        parts[name] = value if isinstance(value, str) else None
    if wrong:
        return None
    return Ask(
        family=family,
        stage=parts["stage"],
        causal_mode=parts["causal_mode"],
        objective=parts["objective"],
        variant=parts["objective_variant"],
    )
