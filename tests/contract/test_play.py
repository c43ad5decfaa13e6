"""`solarwm play` in a real browser: a page, held keys, chunks, and who may come in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from solarwm.cli.app import run
from tests.conftest import QUICKSTART, ROOT
from tests.processes.browser import opened_page

CONFIG = QUICKSTART.parent / "infer-stage2.yaml"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Weights of a tiny student and a picture."""
    from solarwm.backbones.wan22_5b.backbone import create
    from solarwm.backbones.wan22_5b.spec import SPEC

    root = tmp_path_factory.mktemp("play")
    backbone = create(SPEC.profiles["tiny"], SimpleNamespace())
    module = backbone.build(device="cpu", seed=3, endpoint_gate=0.25)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.02)
    save_file(
        {name: weight.contiguous() for name, weight in module.state_dict().items()},
        str(root / "model.safetensors"),
    )
    Image.new("RGB", (120, 90), (200, 30, 10)).save(root / "first.png")
    return root


def _words(files, *more):
    words = ["play", "--config", CONFIG, "--checkpoint", files, "--image", files / "first.png"]
    return [str(word) for word in (*words, *more)]


@pytest.fixture(scope="module")
def served(files):
    """A running server: its process and address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "solarwm", *_words(files, "--port", "0", "--json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    yield process, json.loads(line)["address"]
    if process.poll() is None:
        process.kill()
    process.wait(timeout=30)


def _wait(page, condition):
    deadline = time.monotonic() + 60
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, (condition, page.inner_text("#state"))
        page.wait_for_timeout(50)


def test_keys_steer_what_streams_into_the_page_and_ctrl_c_ends_it(served):
    process, address = served
    with opened_page() as page:
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address)
        _wait(page, "Number(document.body.dataset.shown) >= 1")
        assert page.evaluate("[picture.width, picture.height]") == [96, 64]
        colour = page.evaluate("[...picture.getContext('2d').getImageData(40, 30, 1, 1).data]")
        assert colour[3] == 255
        assert page.inner_text("#trajectory").startswith(".*")
        page.keyboard.down("w")
        _wait(page, "Number((document.body.dataset.position || '0 0 0').split(' ')[2]) > 0.1")
        page.keyboard.up("w")
        page.keyboard.down("ArrowLeft")
        _wait(page, "document.getElementById('trajectory').textContent.includes('j*')")
        page.keyboard.up("ArrowLeft")
        second = page.context.new_page()
        second.goto(address)
        second.get_by_text("somebody else is walking").wait_for(timeout=30_000)
        second.close()
        page.bring_to_front()
        page.click("#restart")
        _wait(page, "document.getElementById('trajectory').textContent.length < 6")
        _wait(page, "document.body.dataset.shown === '0'")
        assert not faults
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_only_this_machine_or_who_has_the_token_comes_in():
    from starlette.testclient import TestClient

    from solarwm.play.server import REFUSED, PlayServer

    def client(token, host):
        server = PlayServer(lambda: None, title="t", fps=16.0, token=token)  # type: ignore[arg-type]
        return TestClient(server.app, base_url=f"http://{host}")

    assert client(None, "127.0.0.1:8642").get("/").status_code == 200
    assert client(None, "elsewhere.example:8642").get("/").status_code == 403
    foreign = {"Origin": "http://elsewhere.example"}
    assert client(None, "localhost:1").get("/health", headers=foreign).status_code == 403
    assert client("secret", "10.0.0.7").get("/").status_code == 403
    assert client("secret", "10.0.0.7").get("/?token=wrong").status_code == 403
    assert client("secret", "10.0.0.7").get("/?token=secret").status_code == 200
    with client("secret", "10.0.0.7").websocket_connect("/walk?token=no") as socket:
        assert socket.receive()["code"] == REFUSED


def test_what_cannot_be_walked_through_is_named(files, capsys, tmp_path):
    bidirectional = str(QUICKSTART.parent / "infer.yaml")
    words = _words(files, "--port", "0", "--json")
    words[2] = bidirectional
    assert run(words) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "play.not-causal"
    assert run(_words(files, "--port", "70000", "--json")) == 5
    assert json.loads(capsys.readouterr().out)["code"] == "play.address"
    words = _words(files, "--port", "0", "--json")
    words[4] = str(tmp_path / "none")
    assert run(words) == 3
    assert json.loads(capsys.readouterr().out)["code"] == "inference.weights-missing"
