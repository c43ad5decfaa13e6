"""The one place where an error becomes text or JSON."""

from __future__ import annotations

import traceback
from typing import cast

from solarwm.errors.redaction import redacted
from solarwm.errors.remedies import remedy
from solarwm.errors.types import FaultList, SolarError

_RED, _BOLD, _DIM, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def render_text(error: BaseException, *, verbose: bool = False, color: bool = False) -> str:
    """What a person reads: headline, place, reason, fixes; every fault of a list; causes when `verbose`.

    Credentials in any of it are hidden, here and in the JSON form.
    """
    faults = _faults(error)
    blocks: list[str] = []
    if len(faults) > 1:
        blocks.append(
            f"{_paint('error', _RED, color)}: {error.args[0] if error.args else ''}".rstrip()
        )
    for number, fault in enumerate(faults, start=1):
        lead = f"{number}. " if len(faults) > 1 else f"{_paint('error', _RED, color)}: "
        blocks.append(_fault_text(fault, lead=lead, color=color))
    if verbose:
        chain = _chain(error)
        if chain:
            blocks.append("caused by\n" + "\n".join(f"  {line}" for line in chain))
        if error.__traceback__ is not None:
            blocks.append("".join(traceback.format_exception(error)).rstrip())
    codes = sorted({fault.code for fault in faults})
    blocks.append(_paint(f"more: solarwm explain {codes[0]}", _DIM, color))
    return redacted("\n".join(blocks))


def render_json(error: BaseException) -> dict[str, object]:
    """The same as a JSON object; `faults` always holds every fault, a single one too."""
    faults = _faults(error)
    first = faults[0]
    return {
        "schema": "solarwm.error.v1",
        "exit_code": error.exit_code if isinstance(error, SolarError) else first.exit_code,
        "code": first.code,
        "message": redacted(
            str(error) if len(faults) == 1 else (str(error.args[0]) if error.args else "")
        ),
        "faults": [_fault_json(fault) for fault in faults],
        "caused_by": _chain(error),
    }


def _faults(error: BaseException) -> list[SolarError]:
    if isinstance(error, FaultList):
        return [inner for fault in error.faults for inner in _faults(fault)]
    if isinstance(error, SolarError):
        return [error]
    return [SolarError("bug.unexpected", f"{type(error).__name__}: {error}")]


def _fixes(fault: SolarError) -> tuple[str, ...]:
    known = remedy(fault.code)
    return fault.fixes or ((known,) if known else ())


def _fault_text(fault: SolarError, *, lead: str, color: bool) -> str:
    indent = " " * (len(lead) if not lead.startswith(("error", _RED)) else 2)
    lines = [f"{lead}{_paint(fault.headline, _BOLD, color)}  [{fault.code}]"]
    if fault.where:
        lines.append(f"{indent}at   {fault.where}")
    if fault.why:
        lines.append(f"{indent}why  {fault.why}")
    lines += [f"{indent}fix  {fix}" for fix in _fixes(fault)]
    return "\n".join(lines)


def _fault_json(fault: SolarError) -> dict[str, object]:
    return {
        "code": fault.code,
        "exit_code": fault.exit_code,
        "headline": redacted(fault.headline),
        "where": redacted(fault.where) if fault.where else fault.where,
        "why": redacted(fault.why),
        "fixes": [redacted(fix) for fix in _fixes(fault)],
        "context": {redacted(key): _plain(value) for key, value in fault.context.items()},
    }


def _plain(value: object) -> object:
    if isinstance(value, str):
        return redacted(value)
    if value is None or isinstance(value, int | float | bool):
        return value
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        return {redacted(str(key)): _plain(item) for key, item in items.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in cast("list[object]", value)]
    return redacted(str(value))


def _chain(error: BaseException) -> list[str]:
    lines: list[str] = []
    seen: set[int] = {id(error)}
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        lines.append(redacted(f"{type(cause).__name__}: {cause}"))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return lines


def _paint(text: str, style: str, color: bool) -> str:
    return f"{style}{text}{_PLAIN}" if color else text
