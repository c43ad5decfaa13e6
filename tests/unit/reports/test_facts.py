from __future__ import annotations

import pytest

from solarwm.reports.demands import demands
from solarwm.reports.facts import combine, lookup, read_generation, read_training, spread


def test_a_resumed_training_shows_every_step_once_and_survives_a_torn_last_line(training_root):
    facts = read_training(training_root)
    assert [point.step for point in facts.steps] == list(range(1, 121))
    assert facts.resumes == (40,)
    assert facts.name == "my <run>"


def test_a_directory_without_files_gives_empty_facts(tmp_path):
    assert read_training(tmp_path).steps == ()
    assert read_generation(tmp_path).clips == ()
    assert not read_generation(tmp_path).complete


def test_clips_of_every_pass_are_found_in_slot_order(generation_root):
    facts = read_generation(generation_root)
    assert facts.complete
    assert [(clip.pass_name, clip.slot) for clip in facts.clips] == [
        ("ema_inverse", 0),
        ("ema_inverse", 1),
        ("ema_source", 0),
        ("ema_source", 1),
    ]


def test_seeds_are_averaged_number_by_number(make_quality):
    summaries = [make_quality(0.0), make_quality(0.4)]
    path = ("passes", "ema_source", "psnr_truth")
    assert lookup(combine(summaries), path) == pytest.approx(17.2)
    assert spread(summaries, path) == (17.0, 17.4)
    assert lookup(combine(summaries), ("passes", "ema_source", "clips")) == 2
    assert combine([]) == {}


def test_demands_are_differences_of_the_figures(make_quality):
    table = {demand.name: demand for demand in demands(make_quality(0.0))}
    assert table["right camera over static"].value == pytest.approx(2.0)
    assert table["right camera over static"].met
    assert table["inverse camera below right"].value == pytest.approx(0.8)
    assert table["flow loss, inverse over right"].value == pytest.approx(40.0)
    assert table["VAE over static"].value == pytest.approx(5.5)
    best = table["right camera over the best camera-blind picture"]
    assert best.value == pytest.approx(4.0)


def test_a_figure_that_was_not_measured_has_no_verdict():
    assert {demand.met for demand in demands({})} == {None}
