"""Small charts as inline SVG text. Colours come from the page's CSS variables, so they follow its
theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

Place = Callable[[float, float], tuple[float, float]]


def line_chart(
    points: Sequence[tuple[float, float]],
    *,
    x_label: str,
    y_label: str,
    marks: Sequence[tuple[float, str]] = (),
    width: int = 860,
    height: int = 300,
) -> str:
    """A curve: the raw values thin, their running mean bold, `marks` as dashed verticals with a
    word."""
    points = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(points) < 2:
        return f'<p class="muted">Too few points for a chart of {escape(y_label)}.</p>'
    left, right, top, bottom = 56, 16, 14, 40
    smooth = _running_mean(points)
    values = sorted(y for _, y in points)
    low = min(0.0, values[0])
    high = max(values[min(len(values) - 1, int(len(values) * 0.995))], max(y for _, y in smooth))
    ticks_y, ticks_x = _ticks(low, high), _ticks(points[0][0], points[-1][0])
    low, high = min(low, ticks_y[0]), max(high, ticks_y[-1])
    first, last = points[0][0], points[-1][0]

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (x - first) / (last - first) * (width - left - right)
        down = top + (high - min(y, high)) / (high - low) * (height - top - bottom)
        return across, down

    parts = [
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(y_label)} over {escape(x_label)}">'
    ]
    for tick in ticks_y:
        _, y = place(first, tick)
        parts.append(_line("grid", left, y, width - right, y))
        parts.append(_text("tick", left - 8, y + 4, _plain(tick), "end"))
    for tick in ticks_x:
        if first <= tick <= last:
            x, _ = place(tick, low)
            parts.append(_text("tick", x, height - bottom + 18, _plain(tick), "middle"))
    for mark, word in marks:
        if first <= mark <= last:
            x, _ = place(mark, low)
            parts.append(_line("mark", x, top, x, height - bottom))
            parts.append(_text("tick", x + 5, top + 10, word))
    parts.append(f'<polyline class="raw" points="{_polyline(points, place)}"/>')
    parts.append(f'<polyline class="curve" points="{_polyline(smooth, place)}"/>')
    parts.append(_text("tick", (left + width - right) / 2, height - 4, x_label, "middle"))
    return "".join(parts) + "</svg>"


def dot_plot(
    rows: Sequence[tuple[str, float, str]], *, unit: str, width: int = 860, row_height: int = 30
) -> str:
    """Named values on one scale, as dots with their number; the third part is a CSS class (`own`,
    `wrong`, ...)."""
    rows = [row for row in rows if math.isfinite(row[1])]
    if not rows:
        return ""
    left, right, top, bottom = 250, 76, 6, 30
    height = top + bottom + row_height * len(rows)
    values = [value for _, value, _ in rows]
    ticks = _ticks(min(values), max(values))
    low, high = min(ticks[0], *values), max(ticks[-1], *values)
    high = high if high > low else low + 1.0

    def place(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - right)

    parts = [
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="values in {escape(unit)}">'
    ]
    for tick in ticks:
        x = place(tick)
        parts.append(_line("grid", x, top, x, height - bottom))
        parts.append(_text("tick", x, height - bottom + 18, _plain(tick), "middle"))
    for ordinal, (name, value, kind) in enumerate(rows):
        y = top + row_height * (ordinal + 0.5)
        x = place(value)
        parts.append(_text("label", left - 14, y + 4, name, "end"))
        parts.append(_line(f"stem {kind}", left, y, x, y))
        parts.append(f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>')
        parts.append(_text("value", x + 12, y + 4, f"{value:.2f} {unit}"))
    return "".join(parts) + "</svg>"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def _polyline(points: Sequence[tuple[float, float]], place: Place) -> str:
    step = max(1, len(points) // 1200)
    placed = (place(x, y) for x, y in [*points[::step], points[-1]])
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)


def _running_mean(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    window = max(1, len(points) // 30)
    total, result = 0.0, []
    for place, (x, y) in enumerate(points):
        total += y - (points[place - window][1] if place >= window else 0.0)
        result.append((x, total / min(place + 1, window)))
    return result


def _ticks(low: float, high: float) -> list[float]:
    """Four to seven round values that enclose low..high."""
    span = high - low if high > low else max(abs(high), 1.0)
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    start = math.floor(low / step) * step
    count = math.ceil((high - start) / step - 1e-9)
    return [start + step * place for place in range(count + 1)]


def _plain(value: float) -> str:
    return f"{value:.6g}"
