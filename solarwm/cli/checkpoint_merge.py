"""`solarwm checkpoint merge`: a difference, an average, or an adapter put into weights."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solarwm.cli.checkpoint_convert import (
    DtypeOption,
    Layout,
    LayoutOption,
    NumberType,
    OverwriteOption,
    Weights,
    WeightsOption,
    lines,
    written,
)
from solarwm.cli.output import JsonOption, emit
from solarwm.errors.types import SolarError

if TYPE_CHECKING:
    from solarwm.workshop.merge import Merged
    from solarwm.workshop.tensors import Tensors


class KeepOrError(StrEnum):
    """What becomes of a key that does not fit."""

    KEEP = "keep-base"
    ERROR = "error"


class NewKeys(StrEnum):
    """What becomes of a key only the target has."""

    ADD = "add"
    DROP = "drop"
    ERROR = "error"


class Like(StrEnum):
    """Behaviour of another tool."""

    TURBODIFFUSION = "turbodiffusion"


def merge(
    base: Annotated[Path | None, typer.Option("--base", help="Weights to change.")] = None,
    diff_base: Annotated[
        Path | None, typer.Option("--diff-base", help="What the target was tuned from.")
    ] = None,
    diff_target: Annotated[
        Path | None, typer.Option("--diff-target", help="The tuned weights.")
    ] = None,
    lora: Annotated[
        Path | None, typer.Option("--lora", help="Adapter to put into the base instead.")
    ] = None,
    average: Annotated[
        list[Path] | None, typer.Option("--average", help="File to average. Repeatable.")
    ] = None,
    average_weight: Annotated[
        list[str] | None,
        typer.Option("--average-weight", help="Its weight, in the same order. Repeatable."),
    ] = None,
    w: Annotated[float, typer.Option("--w", help="Factor on the difference or the adapter.")] = 1.0,
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="In place of the adapter's own alpha.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="File or folder.")] = None,
    on_shape_mismatch: Annotated[
        KeepOrError, typer.Option("--on-shape-mismatch", help="A key with another shape.")
    ] = KeepOrError.KEEP,
    on_missing: Annotated[
        KeepOrError, typer.Option("--on-missing", help="A key of the base the others lack.")
    ] = KeepOrError.KEEP,
    on_new: Annotated[
        NewKeys, typer.Option("--on-new", help="A key only the target has.")
    ] = NewKeys.ADD,
    like: Annotated[
        Like | None, typer.Option("--like", help="Policies and names of another tool.")
    ] = None,
    weights: WeightsOption = Weights.LIVE,
    format: LayoutOption = Layout.AUTO,
    dtype: DtypeOption = NumberType.KEEP,
    overwrite: OverwriteOption = False,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Check the formula on tiny tensors and stop.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Combine weights: base + w (diff target - diff base), a weighted average, or an adapter.

    fp32 arithmetic, results in the dtype of the base. Every key falls into one category; counts and
    names go to OUTPUT.report.json. A result that would equal the base is refused (exit code 3).
    """
    if selftest:
        _selftest(json=json)
        return
    ways = {
        "--diff-base and --diff-target": diff_base is not None or diff_target is not None,
        "--lora": lora is not None,
        "--average": bool(average),
    }
    if sum(ways.values()) != 1 or output is None:
        raise _usage(f"one of {', '.join(ways)} is needed, and --output")
    if not average and base is None:
        raise _usage("--base is missing")
    if like is not None and (on_shape_mismatch, on_missing, on_new) != (
        KeepOrError.KEEP,
        KeepOrError.KEEP,
        NewKeys.ADD,
    ):
        raise _usage("--like sets the policies; give no others beside it")

    from solarwm.workshop import merge as merging
    from solarwm.workshop.adapter import merge_adapter

    def opened(path: Path | None) -> Tensors:
        if path is None:
            raise _usage("--diff-base and --diff-target go together")
        return _plain(path, weights, keep_names=like is not None)

    made: Merged
    if average:
        given = [_number(text) for text in average_weight or ["1"] * len(average)]
        made = merging.average([opened(path) for path in average], given)
    elif lora is not None:
        adapter = _plain(lora, Weights.LIVE, keep_names=True)
        made = merge_adapter(opened(base), adapter, alpha=alpha, weight=w)
    else:
        policies = merging.Policies(
            on_shape_mismatch=on_shape_mismatch.value,
            on_missing=on_missing.value,
            on_new=on_new.value,
        )
        sources = [opened(path) for path in (base, diff_base, diff_target)]
        made = merging.merge_difference(*sources, weight=w, policies=policies)
    report: dict[str, Any] = {"schema": "solarwm.merge.v1", **made.report}
    report |= written(
        made.tensors,
        output,
        layout=format,
        dtype=dtype,
        overwrite=overwrite,
        verb="merging",
        beside=report,
    )
    emit(report, json=json, text=_lines)


def _plain(path: Path, weights: Weights, *, keep_names: bool) -> Tensors:
    from solarwm.workshop.names import without_wrappers
    from solarwm.workshop.tensors import open_tensors

    found = open_tensors(path, weights=weights.value)
    return found if keep_names else found.renamed(without_wrappers(found.facts))


def _selftest(*, json: bool) -> None:
    from solarwm.workshop.merge import selftest

    error = selftest()
    if error:
        raise SolarError("bug.unexpected", f"the merge formula is off by {error}")
    value = {"schema": "solarwm.merge-selftest.v1", "ok": True, "largest_error": error}
    emit(value, json=json, text=lambda _: ["the merge formula holds on tiny tensors, exactly"])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _usage(f"--average-weight takes numbers, not {text!r}") from None


def _usage(why: str) -> SolarError:
    return SolarError(
        "cli.usage",
        why,
        where="solarwm checkpoint merge",
        fixes=["solarwm checkpoint merge --base A --diff-base B --diff-target C --output D"],
    )


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from lines(report)
    yield f"  {report['rule']}"
    for name, found in report.get("categories", {}).items():
        if found["count"]:
            yield f"  {found['count']:6} {name.replace('_', ' ')}"
    if "modules" in report:
        yield (
            f"  {report['modules']} modules of {report['two_dimensional_weights']} matrices, "
            f"unmerge error {report['unmerge_error']:.1e}"
        )
