"""One page for a training and what it generates: figures, loss curve, videos, facts. No outside
resources; videos are relative links, so the page moves together with its run directories."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from solarwm.reports import charts
from solarwm.reports.demands import Demand, demands
from solarwm.reports.facts import (
    ClipFacts,
    GenerationFacts,
    TrainingFacts,
    combine,
    lookup,
    passes_of,
    spread,
)
from solarwm.reports.stages import StageRow, stage_section
from solarwm.reports.style import STYLE
from solarwm.storage import durable

CAMERA_WORDS: dict[str, str] = {
    "source": "right camera",
    "inverse": "inverse camera",
    "mirror": "mirrored camera",
    "frozen": "frozen camera",
    "other": "another clip's camera",
}
BASELINE_WORDS: dict[str, str] = {
    "vae": "VAE reconstruction (ceiling)",
    "static": "first frame repeated",
    "blur_4": "first frame, blurred 4 px",
    "blur_8": "first frame, blurred 8 px",
    "blur_16": "first frame, blurred 16 px",
    "mean_latent": "decoded mean latent",
}


def write_report(
    path: Path,
    training: TrainingFacts | None,
    generations: Sequence[GenerationFacts],
    *,
    title: str,
    lead: str,
    stages: Sequence[StageRow] = (),
    max_clips: int = 12,
) -> None:
    """Write the page to `path`, replacing an older page there; links are relative to its folder."""
    page = render(
        training,
        generations,
        title=title,
        lead=lead,
        base=path.parent,
        stages=stages,
        max_clips=max_clips,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_bytes_atomic(path, page.encode())


def render(
    training: TrainingFacts | None,
    generations: Sequence[GenerationFacts],
    *,
    title: str,
    lead: str,
    base: Path,
    stages: Sequence[StageRow] = (),
    max_clips: int = 12,
) -> str:
    """The page as text. Several generations of one model are read as noise seeds and averaged."""
    summaries = [generation.quality for generation in generations if generation.quality]
    quality = combine(summaries)
    parts = [
        '<p class="kicker">solarwm</p>',
        f"<h1>{escape(title)}</h1><p>{escape(lead)}</p>",
    ]
    body = [f"<header>{''.join(parts)}</header>", _tiles(training, quality)]
    if quality:
        body.append(_quality(quality, summaries))
    body.append(stage_section(stages))
    if training is not None and training.steps:
        body.append(_course(training))
    for generation in generations[:1]:
        body.append(_clips(generation, base, max_clips))
    body.append(_facts(training, generations, base))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _tiles(training: TrainingFacts | None, quality: dict[str, Any]) -> str:
    tiles: list[tuple[str, str]] = []
    table = {demand.name: demand for demand in demands(quality)} if quality else {}
    for name, words in (
        ("right camera over static", "closer to the truth than repeating the first frame"),
        ("inverse camera below right", "lost when the camera is driven backwards"),
        ("flow loss, inverse over right", "more flow loss with the inverse camera"),
    ):
        demand = table.get(name)
        if demand is not None and demand.value is not None:
            tiles.append((_signed(demand), words))
    if training is not None and training.steps:
        times = [p.step_time_s for p in training.steps if math.isfinite(p.step_time_s)]
        tiles.append((f"{training.steps[-1].step:,}", "optimizer steps"))
        if times:
            times.sort()
            tiles.append((f"{times[len(times) // 2]:.3g} s", "median step"))
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(words)}</span></div>'
        for value, words in tiles[:4]
    )
    return f'<section class="tiles">{cells}</section>' if cells else ""


def _quality(quality: dict[str, Any], summaries: Sequence[Any]) -> str:
    right = quality["passes"].get(quality.get("right") or "", {})
    seeds = f", mean over {len(summaries)} noise seeds" if len(summaries) > 1 else ""
    setting = (
        f"{right.get('clips', 0)} held-out clips, frames 1 to the end, mean of per-clip PSNR, "
        f"{right.get('num_inference_steps', '?')} {right.get('solver', '')} steps{seeds}."
    )
    rows: list[tuple[str, float, str]] = []
    for name in ("vae",):
        _add(rows, quality, name, "ceiling")
    for entry in quality["passes"].values():
        kind = "own" if entry["camera"] == "source" else "wrong"
        rows.append((_camera_words(entry["camera"]), entry["psnr_truth"], kind))
    for name in BASELINE_WORDS:
        if name != "vae":
            _add(rows, quality, name, "still")
    rows.sort(key=lambda row: -row[1])
    legend = (
        '<p class="legend"><span><i style="background:var(--own)"></i>model, right camera</span>'
        '<span><i style="background:var(--wrong)"></i>same weights, wrong camera</span>'
        '<span><i style="background:var(--still)"></i>no model at all</span>'
        '<span><i style="background:var(--good)"></i>ceiling</span></p>'
    )
    return (
        f"<h2>Does the model follow the camera?</h2><p class='muted'>{escape(setting)}</p>"
        f"<div class='card'>{charts.dot_plot(rows, unit='dB')}{legend}</div>"
        f"<div class='card'>{_psnr_table(quality, summaries)}</div>"
        f"<h2>Asked and reached</h2><p class='muted'>The least each figure should be in the long "
        f"profile; a short first run need not reach them. This is interpolation in one learned "
        f"scene: it shows that cameras, attention and sampling work end to end, not that the model "
        f"knows other places.</p>"
        f"<div class='card'>{_demand_table(demands(quality))}</div>"
    )


def _psnr_table(quality: dict[str, Any], summaries: Sequence[Any]) -> str:
    lines = [
        "<table><tr><th>PSNR in dB against</th><th class='number'>rendered truth</th>"
        "<th class='number'>reconstructed truth</th><th class='number'>loss to right camera</th>"
        "</tr>"
    ]
    for name, entry in passes_of(quality):
        words = _camera_words(entry["camera"])
        lines.append(
            f"<tr><td>{escape(words)}<small>{escape(name)}</small></td>"
            f"{_cell(entry['psnr_truth'], spread(summaries, ('passes', name, 'psnr_truth')))}"
            f"{_cell(entry['psnr_reconstruction'])}{_cell(lookup(entry, ('loss', 'psnr_truth')))}"
            "</tr>"
        )
    for name, words in BASELINE_WORDS.items():
        if name in quality["baselines"]:
            base = quality["baselines"][name]
            lines.append(
                f"<tr><td>{escape(words)}</td>{_cell(base.get('truth'))}"
                f"{_cell(base.get('reconstruction'))}<td></td></tr>"
            )
    return "".join(lines) + "</table>"


def _demand_table(table: Sequence[Demand]) -> str:
    lines = [
        "<table><tr><th>Figure</th><th class='number'>reached</th><th class='number'>asked</th>"
        "<th>verdict</th></tr>"
    ]
    for demand in table:
        if demand.value is None:
            continue
        verdict = "<span class='met'>reached</span>"
        if not demand.met:
            verdict = "<span class='missed'>not reached</span>"
        lines.append(
            f"<tr><td>{escape(demand.name)}<small>{escape(demand.meaning)}</small></td>"
            f"<td class='number'>{_signed(demand)}</td>"
            f"<td class='number'>{demand.least:+.1f} {demand.unit}</td><td>{verdict}</td></tr>"
        )
    return "".join(lines) + "</table>"


def _course(training: TrainingFacts) -> str:
    marks = [(float(step), "resumed") for step in training.resumes]
    loss = charts.line_chart(
        [(point.step, point.loss) for point in training.steps],
        x_label="optimizer step",
        y_label="flow-matching loss",
        marks=marks,
    )
    waits = [
        point.data_wait_s / point.step_time_s
        for point in training.steps
        if point.step_time_s > 0 and math.isfinite(point.data_wait_s)
    ]
    note = ""
    if waits:
        share = 100 * sum(waits) / len(waits)
        note = f"<p class='muted'>Waiting for data took {share:.1f} % of the step time.</p>"
    return f"<h2>Training loss</h2><div class='card'>{loss}</div>{note}"


def _clips(generation: GenerationFacts, base: Path, max_clips: int) -> str:
    by_slot: dict[int, list[ClipFacts]] = {}
    for clip in generation.clips:
        by_slot.setdefault(clip.slot, []).append(clip)
    figures = []
    for slot in sorted(by_slot)[:max_clips]:
        figures.append(_clip(by_slot[slot], base))
    if not figures:
        return "<h2>Generated clips</h2><p class='muted'>There are none.</p>"
    return (
        "<h2>Generated clips</h2><p class='muted'>Ground truth left, generated right. The model is "
        "given the first frame, the caption and the camera path.</p>"
        f"<div class='clips'>{''.join(figures)}</div>"
    )


def _clip(clips: Sequence[ClipFacts], base: Path) -> str:
    own = next((clip for clip in clips if clip.camera == "source"), clips[0])
    video = "compare.mp4" if "compare.mp4" in own.artifacts else "video.mp4"
    source = _link(own.folder / video, base)
    figures = []
    if own.psnr_truth is not None:
        figures.append(f"<b>{own.psnr_truth:.2f} dB</b>")
        if own.static_psnr is not None:
            figures.append(f"first frame repeated {own.static_psnr:.2f} dB")
    links = " &middot; ".join(
        f'<a href="{_link(clip.folder / "compare.mp4", base)}">'
        f"{escape(_camera_words(clip.camera))}"
        f"{f' {clip.psnr_truth:.2f}' if clip.psnr_truth is not None else ''}</a>"
        for clip in clips
        if clip is not own
    )
    return (
        f'<figure class="card clip"><video src="{source}" controls loop muted autoplay playsinline '
        f'preload="metadata"></video><figcaption>{" &middot; ".join(figures)}'
        f"<div>{escape(own.prompt)}</div>"
        f'<div class="links">{escape(own.sample_id)}{" &middot; " + links if links else ""}</div>'
        "</figcaption></figure>"
    )


def _facts(
    training: TrainingFacts | None, generations: Sequence[GenerationFacts], base: Path
) -> str:
    rows: list[tuple[str, str]] = []
    if training is not None:
        config, launch = training.config, training.launch
        rows += [
            ("Training", training.name),
            ("Route", str(launch.get("route", ""))),
            ("Profile", str(config.get("model", {}).get("profile", "released"))),
            ("Frames, height, width", _geometry(config)),
            ("Processes", str(config.get("distributed", {}).get("world_size", ""))),
            ("Global batch", str(config.get("train", {}).get("global_batch_size", ""))),
            ("Numerics", str(launch.get("numerics", ""))),
            ("Resumed at step", ", ".join(map(str, training.resumes))),
            ("Training ended", _ending(training.result)),
            ("Training directory", os.path.relpath(training.root, base)),
        ]
    for generation in generations:
        seed = generation.config.get("validation", {}).get("noise_seed", "")
        state = "complete" if generation.complete else "not complete"
        failed = f", {len(generation.failures)} clips failed" if generation.failures else ""
        rows += [
            (f"Generation, noise seed {seed}", f"{state}{failed}; {_ending(generation.result)}"),
            ("Generation directory", os.path.relpath(generation.root, base)),
        ]
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td class='{'path' if 'directory' in name else ''}'>"
        f"{escape(value)}</td></tr>"
        for name, value in rows
        if value
    )
    return f"<h2>Run facts</h2><div class='card'><table>{lines}</table></div>" if lines else ""


def _geometry(config: Any) -> str:
    data = config.get("data", {})
    return f"{data.get('pixel_frames', '?')} x {data.get('height', '?')} x {data.get('width', '?')}"


def _ending(result: Any) -> str:
    if not result:
        return ""
    return f"{result.get('status', '?')}, exit code {result.get('exit_code', '?')}"


def _add(rows: list[tuple[str, float, str]], quality: dict[str, Any], name: str, kind: str) -> None:
    value = lookup(quality, ("baselines", name, "truth"))
    if value is not None:
        rows.append((BASELINE_WORDS[name], value, kind))


def _camera_words(camera: object) -> str:
    return CAMERA_WORDS.get(str(camera), str(camera))


def _cell(value: float | None, bounds: tuple[float, float] | None = None) -> str:
    if value is None:
        return "<td class='number'></td>"
    extra = ""
    if bounds is not None and bounds[1] > bounds[0]:
        extra = f"<small>{bounds[0]:.2f} to {bounds[1]:.2f}</small>"
    return f"<td class='number'>{value:.2f}{extra}</td>"


def _signed(demand: Demand) -> str:
    assert demand.value is not None
    return f"{demand.value:+.2f} dB" if demand.unit == "dB" else f"{demand.value:+.0f} %"


def _link(path: Path, base: Path) -> str:
    return quote(os.path.relpath(path, base).replace(os.sep, "/"))
