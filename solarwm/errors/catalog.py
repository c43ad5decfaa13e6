"""Every error code: its exit code, and the text that `solarwm explain CODE` prints."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One kind of fault."""

    exit_code: int
    title: str
    explanation: str


# The first word of a code names the room that found the fault; the exit code follows the nature of the
# fault: 2 command line or config, 3 a named file, 4 partial output, 5 surroundings, 6 another rank,
# 7 non-finite numbers, 70 a bug.
CATALOG: dict[str, Entry] = {
    "cli.usage": Entry(
        2,
        "The command line is wrong",
        "An option or argument is missing, unknown or malformed. `solarwm COMMAND --help` lists them.",
    ),
    "cli.action-mismatch": Entry(
        2,
        "The config is for another command",
        "`action:` in the config says which command it is written for (train, infer or preencode).",
    ),
    "cli.not-available": Entry(
        2,
        "This route cannot do that",
        "The command is known but the chosen route has no implementation of it in this release.",
    ),
    "bug.unexpected": Entry(
        70,
        "A bug in solarwm",
        "Something happened that the program did not foresee. The full traceback is kept in the run directory "
        "or printed with --verbose; please report it.",
    ),
}


def entry(code: str) -> Entry:
    """The catalogue entry of `code`; a code nobody catalogued is itself a bug."""
    return CATALOG.get(code) or CATALOG["bug.unexpected"]
