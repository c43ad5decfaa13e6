"""Write docs/reference/*.md and the tables of tools/write_tables.py from the program itself.

`--check` writes nothing and only says whether they are current.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE = REPOSITORY / "docs" / "reference"


def main() -> int:
    """0 when the files are written (or current), 1 when `--check` finds one that is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    from write_tables import tables

    pages = {
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "config.md": config_page(),
        REFERENCE / "errors.md": errors_page(),
        **tables(),
    }
    stale = [path.name for path, text in pages.items() if _current(path) != text]
    if options.check:
        if stale:
            print(f"out of date: {', '.join(stale)}; run: make docs")
        return int(bool(stale))
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, text in pages.items():
        path.write_text(text)
    print(f"wrote {len(stale)} changed page(s) of {len(pages)}")
    return 0


def _current(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def cli_page() -> str:
    """Every command with its options, as `--help` tells them."""
    from solarwm.cli.commands import COMMANDS
    from solarwm.cli.lazy import load

    lines = ["# Commands", "", "Generated from the program by `make docs`.", ""]
    for name in COMMANDS:
        for path, command in _leaves((name,), load(name)):
            lines += [f"## solarwm {' '.join(path)}", "", _plain(command.help or ""), ""]
            rows = [row for row in _options(command) if row]
            if rows:
                lines += ["| argument or option | default | meaning |", "|---|---|---|", *rows, ""]
            if command.epilog:
                example = _plain(command.epilog).removeprefix("Example: ")
                lines += ["```bash", example, "```", ""]
    return "\n".join(lines)


def _leaves(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from _leaves((*path, name), child)


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
            continue
        argument = parameter.param_type_name == "argument"
        name = (parameter.name or "").upper() if argument else ", ".join(parameter.opts)
        metavar = (
            ""
            if argument or getattr(parameter, "is_flag", False)
            else f" {parameter.metavar or 'VALUE'}"
        )
        default = parameter.default
        shown = "required" if parameter.required else _default(default)
        help_text = _cell(getattr(parameter, "help", "") or "")
        yield f"| `{name}{metavar}` | {shown} | {help_text} |".replace("|PATH`", "\\|PATH`")


def _default(value: Any) -> str:
    if value is None or value is False or value in ((), [], "") or callable(value):
        return ""
    return f"`{value}`"


def config_page() -> str:
    """Every field of every run model, section by section."""
    from solarwm.config.binding import fields, mark_of
    from solarwm.config.schema import run_models

    lines = [
        "# Config fields",
        "",
        "Generated from the typed models by `make docs`; `config schema` prints a JSON Schema for editors.",
        "",
        "*Bound* says how far a value is fixed: `format` always, `architecture` for the released profile",
        "(derived in `tiny` and `small`), `recipe` not at all (a deviation from the published value is",
        "noted by resolve), `derived` may be left out. How files and `--set` are read: [config.md](../config.md).",
        "",
    ]
    for model in run_models():
        module = model.__module__.split(".")[-2]
        lines += [
            f"## {module}: {model.__name__}",
            "",
            "| field | type | default | bound | meaning |",
            "|---|---|---|---|---|",
        ]
        texts = _texts(model)
        for dotted, info in fields(model):
            mark = mark_of(info)
            bound = type(mark).__name__.lower() if mark is not None else ""
            required = info.is_required()
            default = (
                "required"
                if required
                else _default(None if callable(info.default_factory) else info.default)
            )
            meaning = _cell(texts.get(dotted, info.description or ""))
            lines.append(
                f"| `{dotted}` | {_type(info.annotation)} | {_cell(default)} | {bound} | {meaning} |"
            )
        lines.append("")
    return "\n".join(lines)


def _texts(model: Any, prefix: str = "") -> dict[str, str]:
    from solarwm.config.binding import key_of, nested
    from solarwm.config.descriptions import describe

    texts: dict[str, str] = {}
    own = describe(model)
    for name, info in model.model_fields.items():
        key = key_of(name, info)
        inner, many = nested(info.annotation)
        dotted = f"{prefix}{key}{'[]' if many else ''}"
        texts[dotted] = own.get(name, "")
        texts[f"{prefix}{key}"] = own.get(name, "")
        if inner is not None:
            texts |= _texts(inner, f"{dotted}.")
    return texts


def _type(annotation: Any) -> str:
    text = (
        getattr(annotation, "__name__", None) if not getattr(annotation, "__args__", None) else None
    )
    text = text or re.sub(r"(?<!['.\w])(?:[a-zA-Z_]\w*\.)+", "", str(annotation))
    text = re.sub(r"Annotated\[(\w+),.*\]", r"\1", text)
    return _cell(text if len(text) <= 60 else text[:57] + "...")


def errors_page() -> str:
    """The catalogue of error codes."""
    from solarwm.errors.catalog import CATALOG
    from solarwm.errors.remedies import remedy

    lines = [
        "# Errors",
        "",
        "Generated from the catalogue by `make docs`; `solarwm explain CODE` prints one entry.",
        "",
        "| code | exit | what | explanation | what helps |",
        "|---|---|---|---|---|",
    ]
    for code, item in sorted(CATALOG.items()):
        lines.append(
            f"| `{code}` | {item.exit_code} | {_cell(item.title)} | {_cell(item.explanation)} | {_cell(remedy(code))} |"
        )
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\[/?[a-z ]+\]", "", text)).strip()


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
