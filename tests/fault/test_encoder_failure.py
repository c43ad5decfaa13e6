"""The encoder fails for one clip of eight: seven videos, one record, no marker, and a second try that
makes that clip alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solarwm.synthetic.writer import synthesize

CONFIG = Path(__file__).parents[2] / "configs" / "examples" / "quickstart" / "infer.yaml"
PASSES = json.dumps(
    [{"name": "right", "weights": "live", "solver": "euler", "num_inference_steps": 1}]
)
BROKEN = """
from av.error import ExternalError
from solarwm.inference.video import VideoWriter
real = VideoWriter._open
def opened(self, height, width):
    if ".slot-000003." in str(self._path):
        raise ExternalError(542398533, "Generic error in an external library", str(self._path))
    return real(self, height, width)
VideoWriter._open = opened
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("world")
    synthesize(root, clips=11, frames=33, height=32, width=32, seed=2)
    return root


def _infer(warm, world: Path, weights: Path, root: Path, *options: str, patch: str = ""):
    values = {
        "data.index_root": world,
        "data.transport.root": world,
        "data.test_index": "train-index.jsonl.gz",
        "data.pixel_frames": 33,
        "data.height": 32,
        "data.width": 32,
        "distributed.world_size": 1,
        "validation.sample_count": 8,
        "validation.passes": PASSES,
        "checkpoint.path": weights,
        "checkpoint.weights": "live",
        "runtime.output_dir": root,
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return warm.launch(root, ["infer", "--config", str(CONFIG), *words, *options], patch=patch)


def test_a_clip_the_encoder_refuses_is_recorded_and_made_alone_by_a_resume(
    warm, world, drawn_weights, tmp_path
) -> None:
    root = tmp_path / "run"
    ended = _infer(warm, world, drawn_weights, root, patch=BROKEN)
    assert ended.codes == [4], ended.texts
    assert ended.result["exit_code"] == 4
    here = root / "generation" / "right"
    videos = {path: path.stat() for path in here.glob("slot-*/video.mp4")}
    assert {path.parent.name for path in videos} == {
        f"slot-{slot:06d}" for slot in range(8) if slot != 3
    }
    records = list((root / "generation").rglob("errors/*.json"))
    assert [path.name for path in records] == ["slot-000003.json"]
    assert json.loads(records[0].read_bytes())["error"]["code"] == "inference.video"
    assert not list(root.rglob("COMPLETE.json"))
    assert not list(root.rglob(".slot-*"))

    ended = _infer(warm, world, drawn_weights, root, "--resume")
    assert ended.codes == [0], ended.texts
    assert [event["slot"] for event in ended.events(kind="inference_sample")][-1] == 3
    assert {path: path.stat() for path in videos} == videos
    assert len(list(here.glob("slot-*/video.mp4"))) == 8
    assert not list((root / "generation").rglob("errors/*.json"))
    assert (root / "generation" / "COMPLETE.json").is_file()
