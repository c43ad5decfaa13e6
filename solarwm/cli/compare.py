"""`solarwm compare`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from solarwm.cli.output import JsonOption, columns, emit
from solarwm.errors.types import SolarError


def compare(
    one: Annotated[Path, typer.Argument(help="An inference run, or RUN/validation/step_NNNNNN.")],
    two: Annotated[Path, typer.Argument(help="Another one of the same cases.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for a page and side-by-side videos.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="A setting that may differ, such as solver. Repeatable."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare two generations of the same cases: PSNR, SSIM, liveliness, picture motion, videos.

    Refused (exit code 3) unless cases, seeds, cameras, passes and their settings are the same; the
    first field that differs is named.
    """
    try:
        from solarwm.inference import comparison
    except ImportError as error:
        raise SolarError(
            "data.extra-missing",
            "numpy and PyAV are needed to compare videos",
            why=str(error),
            fixes=["pip install 'solarwm[data]'"],
        ) from None
    from solarwm.cli.progress import counted

    for name in allow or ():
        if name not in comparison.FREE:
            raise SolarError(
                "cli.usage",
                f"--allow takes {', '.join(comparison.FREE)}, not {name}",
                fixes=["solarwm compare --help"],
            )
    if out is not None and out.exists() and any(out.iterdir()):
        raise SolarError(
            "cli.file-exists", "the folder is not empty", where=str(out),
            fixes=["choose another --out"],
        )  # fmt: skip
    sides = comparison.open_side(one), comparison.open_side(two)
    passes = comparison.require_alike(*sides, allow or ())
    done = 0
    total = len(passes) * len(sides[0].plan["cases"])
    with counted("comparing", "clips") as progress:

        def tell(_: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            progress(done, total)

        videos = out / "videos" if out is not None else None
        records = comparison.compare(*sides, passes, videos=videos, on_case=tell)
    if not records:
        raise SolarError(
            "compare.nothing",
            "no clip is there on both sides",
            where=f"{one}, {two}",
            fixes=["solarwm infer ... --resume fills the missing clips"],
        )
    table = comparison.summary(records)
    if out is not None:
        from solarwm.reports.comparison import write_comparison

        write_comparison(out / "index.html", (str(one), str(two)), table, records, videos="videos")
    value = {
        "schema": "solarwm.comparison.v1",
        "one": str(one),
        "two": str(two),
        "missing": total - len(records),
        "passes": table,
        "cases": records,
        "page": str(out / "index.html") if out is not None else None,
    }
    emit(value, json=json, text=_lines)
    raise typer.Exit(4 if value["missing"] else 0)


def _lines(value: dict[str, Any]) -> Iterator[str]:
    from solarwm.reports.comparison import FIGURES

    for name, entry in value["passes"].items():
        rows = [
            (words, f"{entry['one'][key]:.{digits}f}", f"{entry['two'][key]:.{digits}f}")
            for key, (words, digits) in FIGURES.items()
            if key in entry["one"] and key in entry["two"]
        ]
        yield from columns(rows, header=(f"{name}, {entry['cases']} cases", "one", "two"))
        yield ""
    if value["missing"]:
        yield f"{value['missing']} clips are not on both sides"
    if value["page"]:
        yield f"open {value['page']}"
