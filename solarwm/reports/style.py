"""The look of a report page: one style sheet, light and dark, no outside resources."""

from __future__ import annotations

STYLE = """
:root {
  --paper: #fbfaf8; --card: #ffffff; --ink: #1d2127; --muted: #69707b; --line: #e4e2dd;
  --own: #1f6fd6; --wrong: #d9622b; --still: #8a8f98; --good: #1b8a5a; --bad: #c2412d;
  --raw: #b9d2f2; --shade: 0 1px 2px rgba(20, 24, 31, .05), 0 6px 24px rgba(20, 24, 31, .05);
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1c1f25; --ink: #e8e9ec; --muted: #969daa; --line: #2d323b;
    --own: #6aa9ff; --wrong: #ff9a66; --still: #8b929f; --good: #5fcf9b; --bad: #ff8a75;
    --raw: #34507a; --shade: none;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55; font-size: 16px;
  font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 980px; margin: 0 auto; padding: 48px 24px 96px; }
header h1 { font-size: 34px; line-height: 1.15; letter-spacing: -.02em; margin: 0 0 8px; }
header p { margin: 0; color: var(--muted); max-width: 68ch; }
h2 { font-size: 21px; letter-spacing: -.01em; margin: 56px 0 6px; }
h2 + p { margin-top: 0; }
p { max-width: 72ch; }
.muted { color: var(--muted); }
.kicker {
  color: var(--own); font-size: 13px; font-weight: 600; letter-spacing: .08em;
  text-transform: uppercase; margin: 0 0 10px;
}
.tiles {
  display: grid; gap: 14px; margin: 28px 0 0;
  grid-template-columns: repeat(auto-fit, minmax(200px, 1fr));
}
.tile, .card {
  background: var(--card); border: 1px solid var(--line); border-radius: 14px;
  box-shadow: var(--shade);
}
.tile { padding: 18px 20px; }
.tile b {
  display: block; font-size: 30px; line-height: 1.1; letter-spacing: -.02em; font-weight: 650;
  font-variant-numeric: tabular-nums;
}
.tile span { display: block; margin-top: 6px; color: var(--muted); font-size: 14px; }
.card { padding: 18px 20px; margin-top: 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 8px 12px 8px 0; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 500; font-size: 14px; }
tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; padding-right: 16px; padding-left: 12px; }
td small { display: block; color: var(--muted); font-size: 13px; }
td.path { overflow-wrap: anywhere; font-family: ui-monospace, Menlo, Consolas, monospace;
  font-size: 13px; }
.met { color: var(--good); font-weight: 600; white-space: nowrap; }
.missed { color: var(--muted); font-weight: 600; white-space: nowrap; }
.clips { display: grid; gap: 18px; grid-template-columns: repeat(auto-fill, minmax(min(440px, 100%), 1fr)); }
.clip { padding: 0; overflow: hidden; margin: 0; }
.clip video { display: block; width: 100%; background: #000; image-rendering: auto; }
.clip figcaption { padding: 12px 16px 14px; font-size: 14px; }
.clip figcaption b { font-weight: 600; }
.clip .links { margin-top: 6px; color: var(--muted); font-size: 13px; }
a { color: var(--own); text-decoration: none; }
a:hover { text-decoration: underline; }
svg.chart { width: 100%; height: auto; display: block; min-width: 560px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .mark { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 3 4; }
svg .tick { fill: var(--muted); font-size: 12px; }
svg .label { fill: var(--ink); font-size: 14px; }
svg .value { fill: var(--ink); font-size: 13px; font-variant-numeric: tabular-nums; }
svg .raw { fill: none; stroke: var(--raw); stroke-width: 1; }
svg .curve { fill: none; stroke: var(--own); stroke-width: 2.5; stroke-linejoin: round; }
svg .stem { stroke-width: 2; stroke: var(--still); opacity: .45; }
svg .dot { fill: var(--still); }
svg .stem.own { stroke: var(--own); } svg .dot.own { fill: var(--own); }
svg .stem.wrong { stroke: var(--wrong); } svg .dot.wrong { fill: var(--wrong); }
svg .stem.ceiling { stroke: var(--good); } svg .dot.ceiling { fill: var(--good); }
.legend { display: flex; flex-wrap: wrap; gap: 18px; margin: 10px 0 0; font-size: 14px;
  color: var(--muted); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 50%;
  margin-right: 7px; }
details { margin-top: 14px; } summary { cursor: pointer; color: var(--own); }
pre { overflow-x: auto; font-size: 13px; }
@media (max-width: 560px) { header h1 { font-size: 27px; } main { padding: 32px 16px 64px; } }
@media print { .card, .tile { box-shadow: none; } }
"""
