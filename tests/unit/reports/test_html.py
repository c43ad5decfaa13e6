from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from solarwm.reports import charts
from solarwm.reports.facts import read_generation, read_training
from solarwm.reports.html import write_report

VOID = {"meta", "br", "img", "link", "input", "hr"}


class _Balance(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links, self.counts = [], [], {}

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def page(training_root, generation_root, tmp_path):
    path = tmp_path / "run" / "index.html"
    training, generation = read_training(training_root), read_generation(generation_root)
    write_report(path, training, [generation], title="A <world>", lead="Learned here.")
    return path


def test_the_page_is_well_formed_and_loads_nothing_from_outside(page):
    text = page.read_text(encoding="utf-8")
    parser = _Balance()
    parser.feed(text)
    assert parser.open == []
    assert not re.search(r"https?://|@import|url\(", text)
    assert parser.counts["video"] == 2
    assert parser.counts["svg"] == 2


def test_links_lead_to_the_videos_from_the_folder_of_the_page(page):
    parser = _Balance()
    parser.feed(page.read_text(encoding="utf-8"))
    assert "generation%20seed%201/generation/ema_source/slot-000000/compare.mp4" in parser.links
    assert all(not link.startswith("/") for link in parser.links)


def test_texts_of_users_are_escaped(page):
    text = page.read_text(encoding="utf-8")
    assert "A &lt;b&gt;room&lt;/b&gt;." in text
    assert "my &lt;run&gt;" in text


def test_the_figures_stand_on_the_page(page):
    text = page.read_text(encoding="utf-8")
    for figure in ("+2.00 dB", "+0.80 dB", "+40 %", "17.00", "inverse camera", "resumed"):
        assert figure in text


def test_a_page_without_quality_still_shows_the_training(training_root, tmp_path):
    path = tmp_path / "index.html"
    write_report(path, read_training(training_root), [], title="t", lead="l")
    assert "Training loss" in path.read_text(encoding="utf-8")


def test_a_chart_drops_what_is_no_number_and_needs_two_points():
    points = [(1.0, 1.0), (2.0, float("nan")), (3.0, 0.5)]
    assert "nan" not in charts.line_chart(points, x_label="x", y_label="y")
    assert "Too few" in charts.line_chart(points[:1], x_label="x", y_label="y")
    assert charts.dot_plot([], unit="dB") == ""


def test_equal_values_make_a_chart():
    flat = [(float(step), 2.0) for step in range(5)]
    assert "<svg" in charts.line_chart(flat, x_label="x", y_label="y")
    assert "<svg" in charts.dot_plot([("a", 3.0, "own"), ("b", 3.0, "wrong")], unit="dB")
