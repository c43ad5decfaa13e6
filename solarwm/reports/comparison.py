"""One page for two generations of the same cases: figures per pass, and their videos side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from solarwm.reports.style import STYLE
from solarwm.storage import durable

FIGURES = {
    "psnr": ("PSNR against the truth, dB", 2),
    "ssim": ("SSIM against the truth", 4),
    "motion_error": ("picture motion apart from the truth, px", 2),
    "change_ratio": ("change from frame to frame, truth = 1", 3),
    "change": ("change from frame to frame, grey levels", 2),
    "better_cases": ("cases with the higher PSNR", 0),
}


def write_comparison(
    path: Path,
    names: tuple[str, str],
    summary: Mapping[str, Mapping[str, Any]],
    records: Sequence[Mapping[str, Any]],
    *,
    videos: str,
) -> None:
    """Write the page to `path`; videos are linked from the folder `videos` beside it."""
    body = [
        "<header><p class='kicker'>solarwm</p><h1>Two generations of the same cases</h1>"
        f"<p>one: {escape(names[0])}<br>two: {escape(names[1])}</p></header>"
    ]
    for name, entry in summary.items():
        body.append(f"<h2>{escape(name)}</h2><div class='card'>{_table(entry)}</div>")
        own = [r for r in records if r["pass"] == name and "video" in r]
        body.append(f"<div class='clips'>{''.join(_clip(r, videos) for r in own)}</div>")
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Comparison</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_bytes_atomic(path, page.encode())


def _table(entry: Mapping[str, Any]) -> str:
    lines = [
        f"<table><tr><th>mean over {entry['cases']} cases</th><th class='number'>one</th>"
        "<th class='number'>two</th></tr>"
    ]
    for key, (words, digits) in FIGURES.items():
        if key in entry["one"] and key in entry["two"]:
            cells = [f"{entry[side][key]:.{digits}f}" for side in ("one", "two")]
            lines.append(
                f"<tr><td>{escape(words)}</td><td class='number'>{cells[0]}</td>"
                f"<td class='number'>{cells[1]}</td></tr>"
            )
    apart = entry["between"].get("psnr")
    if apart is not None:
        lines.append(
            f"<tr><td>PSNR of one against two, dB</td><td class='number'>{apart:.2f}</td>"
            "<td></td></tr>"
        )
    return "".join(lines) + "</table>"


def _clip(record: Mapping[str, Any], videos: str) -> str:
    link = quote(f"{videos}/{record['video']}")
    figures = ", ".join(
        f"{side} {record[side]['psnr']:.2f} dB" for side in ("one", "two") if "psnr" in record[side]
    )
    order = "truth, one, two" if "psnr" in record["one"] else "one, two"
    return (
        f"<figure class='card clip'><video src='{link}' controls loop muted playsinline "
        f"preload='metadata'></video><figcaption><b>{escape(record['sample_id'])}</b> ({order})"
        f"<div class='links'>{escape(figures)}</div></figcaption></figure>"
    )
