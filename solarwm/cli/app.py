"""The program: finds the command, runs it, and turns every ending into a text and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from solarwm import __version__
from solarwm.errors.types import SolarError

_EXIT_BUG = 70
_REFUSALS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT),
)
"""What a disk or its permissions may answer anywhere; never a fault of the program."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `solarwm` with `argv` (default: the command line) and leave with its exit code (docs/runs.md)."""
    if "_SOLARWM_COMPLETE" in os.environ:
        _complete()
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def _complete() -> None:
    """Answer a Tab and leave; come back where Typer has to (other shells, installing)."""
    from solarwm.cli.completion import answer

    told = answer(os.environ)
    if told is not None:
        sys.stdout.write(told[0])
        sys.exit(told[1])


def run(args: list[str]) -> int:
    """The exit code of one command line; prints what there is to print."""
    # Looking for pydantic plugins reads the metadata of every installed package: a third of a start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from solarwm.cli.lazy import build

    command = build()
    try:
        result = command.main(args or ["--help"], prog_name="solarwm", standalone_mode=False)
        return result if isinstance(result, int) and not isinstance(result, bool) else 0
    except SolarError as error:
        return _tell(error, args)
    except KeyboardInterrupt:
        return _tell(SolarError("run.interrupted", "interrupted"), args)
    except BrokenPipeError:
        _close_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            from solarwm.storage.durable import storage_fault

            if error.filename is None:
                _close_output()
            return _tell(storage_fault(error, Path("standard output")), args)
        usage = _usage(error) or _missing_package(error)
        if usage is not None:
            return _tell(usage, args)
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(str(getattr(error, "message", "")) + "\n")
            return 2
        if type(error).__name__ == "Abort":
            return _tell(SolarError("run.interrupted", "aborted"), args)
        return _bug(error, args)


def _close_output() -> None:
    """Let what is still to be printed go nowhere, so that leaving does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: Exception) -> SolarError | None:
    """A command-line mistake as one of our errors; None when `error` is something else or a help page."""
    import typer

    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    if (
        not isinstance(error, usage_error.__bases__[0])
        or type(error).__name__ == "NoArgsIsHelpError"
    ):
        return None
    context = getattr(error, "ctx", None)
    path = str(context.command_path) if context is not None else "solarwm"
    return SolarError(
        "cli.usage",
        str(error.format_message()).strip().rstrip("."),  # type: ignore[attr-defined]
        where=path,
        fixes=[f"{path} --help"],
    )


def _missing_package(error: Exception) -> SolarError | None:
    """The import of an optional package that is absent, as one of our errors."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not name:
        return None
    from solarwm.cli.environment import OPTIONAL

    for package, module, purpose, extra in OPTIONAL:
        if module == name:
            return SolarError(
                "data.extra-missing" if extra == "data" else "train.extra-missing",
                f"packages are missing: {package}",
                why=f"{package} is for {purpose}",
                fixes=[f"pip install 'solarwm[{extra}]'" if extra else f"pip install {package}"],
            )
    return None


def _tell(error: SolarError, args: list[str]) -> int:
    from solarwm.errors.render import render_json, render_text

    options = args[: args.index("--")] if "--" in args else args
    text = render_text(error, verbose="--verbose" in options, color=sys.stderr.isatty())
    if "--json" in options:
        from solarwm.storage.digests import human_json

        sys.stdout.write(human_json(render_json(error)).decode())
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    return error.exit_code


def _bug(error: Exception, args: list[str]) -> int:
    import tempfile
    import traceback

    from solarwm.errors.redaction import redacted

    text = redacted("".join(traceback.format_exception(error)))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="solarwm-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as report:
            report.write(f"solarwm {__version__}, Python {sys.version}\n{text}")
        place = report.name
    except OSError:
        place = "nowhere: no report could be written"
    sys.stderr.write(text)
    bug = SolarError(
        "bug.unexpected",
        f"{type(error).__name__}: {error}",
        why="this is a fault of the program, not of your input",
        fixes=[f"please report it with {place}"],
        context={"report": place},
    )
    return _tell(bug, [option for option in args if option != "--verbose"])
