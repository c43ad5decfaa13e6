"""A Typer group whose commands are imported only when they run."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from solarwm import __version__
from solarwm.cli.commands import COMMANDS
from solarwm.errors.types import SolarError

MARKUP: Any = "rich" if sys.stdout.isatty() else None
"""Help is styled on a terminal and plain text elsewhere."""


class LazyGroup(TyperGroup):
    """Shows stubs from the command table; imports a command when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=entry.help, rich_markup_mode=MARKUP)
        self.rich_markup_mode = MARKUP

    def invoke(self, ctx: Any) -> Any:
        """The result of the command; Ctrl-C is told as every other ending is."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SolarError("run.interrupted", "interrupted") from None

    def get_params(self, ctx: Any) -> Any:
        """The options of the program itself, converted by hand."""
        return _converted(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command for the first argument; the group's own error for an unknown one."""
        name = args[0] if args else ""
        if name in COMMANDS:
            return name, load(name), args[1:]
        return super().resolve_command(ctx, args)


def build() -> Any:
    """The command tree; nothing below the first level is imported."""
    app = typer.Typer(
        cls=LazyGroup,
        rich_markup_mode=MARKUP,
        pretty_exceptions_enable=False,
        epilog="Start here: make quickstart. Every command has --help with an example.",
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"solarwm {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Camera-controlled video world models: one command line from config to rollout."""


def load(name: str) -> Any:
    """The command `name`, imported, with `--json` and `--verbose` on every leaf."""
    entry = COMMANDS[name]
    target = getattr(import_module(entry.module), entry.attribute)
    epilog = f"Example: {entry.example}"
    if isinstance(target, typer.Typer):
        command = typer.main.get_command(target)
        command.epilog = command.epilog or epilog
    else:
        app = typer.Typer(add_completion=False)
        app.command(name, epilog=epilog)(target)
        command = typer.main.get_command(app)
    command.name = name
    _dress(command)
    return command


def _dress(command: Any) -> None:
    command.rich_markup_mode = MARKUP
    stock = command.get_params
    command.get_params = lambda ctx: _converted(stock(ctx))
    children = getattr(command, "commands", None)
    if children:
        command.no_args_is_help = True
        for child in children.values():
            _dress(child)
        return
    known = {option for parameter in command.params for option in getattr(parameter, "opts", ())}
    command.params += [item for item in _shared() if not known & set(item.opts)]


def _converted(parameters: Any) -> Any:
    for parameter in parameters:
        _plain(parameter)
    return parameters


def _shared() -> list[Any]:
    def nothing(
        json: Annotated[bool, typer.Option("--json", help="Print JSON, also errors.")] = False,
        verbose: Annotated[
            bool, typer.Option("--verbose", help="Show causes and tracebacks.")
        ] = False,
    ) -> None:
        """Carries the options every command takes."""

    app = typer.Typer(add_completion=False)
    app.command()(nothing)
    shared = list(typer.main.get_command(app).params)
    for parameter in shared:
        parameter.expose_value = False
    return shared


def _plain(parameter: Any) -> None:
    """Convert text, paths and numbers by hand: the stock conversion imports pydantic for each command."""
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None or getattr(parameter, "_runtime_param", 1) is not None:
        return
    info = descriptor.parameter_info
    bounded = info.min is not None or info.max is not None
    special = info.parser is not None or descriptor.is_choice or descriptor.is_file or bounded
    if special or any(
        getattr(info, name, False) for name in ("exists", "resolve_path", "writable")
    ):
        return
    kind = _PLAIN_KINDS.get(str(descriptor.annotation)) or _PLAIN_KINDS.get(
        getattr(descriptor.annotation, "__name__", "")
    )
    if kind is not None:
        parameter._runtime_param = _Plain(*kind)


class _Plain:
    """The conversion of one parameter: a scalar type, alone or in a list."""

    def __init__(self, kind: type, many: bool) -> None:
        self.kind = kind
        self.many = many

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The typed value; `BadParameter` where the text does not fit."""
        if value is None:
            return [] if self.many else None
        if self.many:
            return [self._one(item, param, ctx) for item in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, self.kind):
            return value
        try:
            return self.kind(value)
        except (TypeError, ValueError):
            words = {"int": "a whole number", "float": "a number"}.get(
                self.kind.__name__, "a value"
            )
            raise typer.BadParameter(f"it must be {words}", ctx=ctx, param=param) from None


_PLAIN_KINDS: dict[str, tuple[type, bool]] = {
    "str": (str, False),
    "bool": (bool, False),
    "int": (int, False),
    "float": (float, False),
    "Path": (Path, False),
    "PosixPath": (Path, False),
    "list[str]": (str, True),
    "list[int]": (int, True),
    "list[pathlib.Path]": (Path, True),
}
