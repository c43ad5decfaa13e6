"""`run report` of a run that ended, of one that failed, and of a generation: text, Markdown, a real page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solarwm.cli.app import run
from tests.conftest import QUICKSTART
from tests.processes.browser import opened_page

FAIL = """
from solarwm.training import loop
real = loop._one_step
def one_step(*args, step, **more):
    if step == 2: raise KeyError("made to fail <b>")
    return real(*args, step=step, **more)
loop._one_step = one_step
"""


@pytest.fixture(scope="module")
def runs(warm, small_world, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    good = warm.train(folder / "good")
    assert good.codes == [0], good.texts
    assert warm.train(folder / "bad", patch=FAIL).codes == [70]
    passes = [{"name": "right", "weights": "live", "solver": "euler", "num_inference_steps": 1}]
    sets = [
        f"data.index_root={small_world}", f"data.transport.root={small_world}", "data.pixel_frames=33",
        "distributed.world_size=1", f"checkpoint.path={folder / 'good'}", "validation.sample_count=1",
        f"validation.passes={json.dumps(passes)}", f"runtime.output_dir={folder / 'made'}",
    ]  # fmt: skip
    words = [word for value in sets for word in ("--set", value)]
    config = str(QUICKSTART.parent / "infer.yaml")
    assert warm.launch(folder / "made", ["infer", "--config", config, *words]).codes == [0]
    return {name: folder / name for name in ("good", "bad", "made")}


def report(capsys, *words: object) -> dict:
    assert run(["run", "report", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_report_says_what_the_files_of_the_run_say(runs, capsys):
    told = report(capsys, runs["good"])
    events = (runs["good"] / "events" / "rank-00000.jsonl").read_text().splitlines()
    steps = [e for e in map(json.loads, events) if e["event"] == "optimizer_step"]
    assert told["end"]["last_step"]["step"] == steps[-1]["step"] == 4
    assert told["end"]["last_step"]["loss"] == steps[-1]["losses"]["mean"]
    assert told["end"]["verdict"] == "complete"
    assert told["left"]["checkpoints"] == ["checkpoint_model_000002", "checkpoint_model_000004"]
    assert told["what"]["route"].startswith("wan22_ti2v_5b:stage0p5")
    assert told["what"]["environment"]["torch"]
    assert told["batch"]["global_batch_size"] == 4
    assert any("verify" in line for line in told["not_verified"])
    failed = report(capsys, runs["bad"])
    assert (failed["end"]["state"], failed["end"]["verdict"]) == ("failed", "bug")
    made = report(capsys, runs["made"])
    assert made["left"]["generation"] == {
        "complete": True, "clips": 1, "failed": 0, "passes": ["right"]
    }  # fmt: skip


def test_markdown_has_every_section(runs, capsys, tmp_path):
    report(capsys, runs["good"], "--out", tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text()
    for title in ("What", "Batch", "Start", "End", "Left", "Not verified"):
        assert f"## {title}\n" in text
    assert (
        run(["run", "report", str(runs["good"]), "--out", str(tmp_path / "r.pdf"), "--json"]) == 2
    )


def test_the_page_opens_in_a_browser_with_curves_and_videos(runs, capsys, tmp_path):
    for name in runs:
        report(capsys, runs[name], "--out", runs[name].parent / f"{name}.html")
    with opened_page() as page:
        faults, outside = [], []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: outside.append(request.url))
        page.goto((runs["good"].parent / "good.html").as_uri())
        assert page.locator("svg.chart").count() >= 1
        assert "checkpoint_model_000004" in page.inner_text("#report")
        page.goto((runs["bad"].parent / "bad.html").as_uri())
        assert "made to fail <b>" in page.inner_text("#report")
        page.goto((runs["made"].parent / "made.html").as_uri())
        assert page.locator("video").count() == 1
        page.wait_for_function("document.querySelector('video').readyState >= 1", timeout=30_000)
        assert not faults
        assert all(url.startswith("file:") for url in outside)
