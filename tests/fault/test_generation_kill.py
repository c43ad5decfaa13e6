"""`infer` killed again and again: with --resume the tree becomes that of a run nobody killed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

INFER = Path(__file__).parents[2] / "configs" / "examples" / "quickstart" / "infer.yaml"
PASSES = json.dumps(
    [
        {"name": "right", "weights": "live", "solver": "euler", "num_inference_steps": 1},
        {"name": "still", "weights": "live", "solver": "euler", "num_inference_steps": 1,
         "camera": "frozen"},
    ]
)  # fmt: skip
KILL = """
import os, signal
from solarwm.inference import video
from solarwm.storage import durable
count = 0
def counted(module, name):
    real = getattr(module, name)
    def wrapper(path, *args, **kwargs):
        global count
        if "generation" in str(path):
            count += 1
            if count == {number}: os.kill(os.getpid(), signal.SIGKILL)
        return real(path, *args, **kwargs)
    setattr(module, name, wrapper)
for module, name in (
    (video, "write_mp4"), (video, "write_cameras"), (durable, "create_bytes"),
    (durable, "write_bytes_atomic"), (durable, "staged_directory"),
):
    counted(module, name)
"""


SEED = 20
AT_TIME = """
import os, signal, threading, time
from solarwm.inference import passes
real = passes.encode_case
def encode_case(*args, **kwargs):
    threading.Timer({after}, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    passes.encode_case = real
    return real(*args, **kwargs)
passes.encode_case = encode_case
"""
"""Kills some time after the first clip is read."""


def _tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_generation_killed_at_any_write_ends_as_one_never_killed(warm, tmp_path: Path) -> None:
    trained = warm.train(tmp_path / "training", "train.max_steps=1", "runtime.save_every=1")
    assert trained.codes == [0], trained.texts
    settings = warm.settings(tmp_path, 1, ())
    world = [word for word in settings if word.startswith(("data.index_root", "data.transport"))]

    def infer(root: Path, *options: str, kill_at: int = 0, after_s: float | None = None):
        sets = [
            *world,
            "data.pixel_frames=33",
            "distributed.world_size=1",
            f"checkpoint.path={trained.root}",
            "validation.sample_count=2",
            f"validation.passes={PASSES}",
            f"runtime.output_dir={root}",
        ]
        words = [word for value in sets for word in ("--set", value)]
        patch = KILL.format(number=kill_at) if kill_at else ""
        if after_s is not None:
            patch = AT_TIME.format(after=after_s)
        return warm.launch(root, ["infer", "--config", str(INFER), *words, *options], patch=patch)

    # One place for both runs: the digest of the config, which clips record, holds it.
    killed = tmp_path / "generated"
    straight = infer(killed)
    assert straight.codes == [0], straight.texts
    whole = _tree(killed / "generation")
    killed.rename(tmp_path / "straight")
    options: tuple[str, ...] = ()
    for number in (2, 5, 7, 11):
        ended = infer(killed, *options, kill_at=number)
        assert ended.codes == [-9], ended.texts
        assert not (killed / "generation" / "COMPLETE.json").exists()
        options = ("--resume",)
    resumed = infer(killed, "--resume")
    assert resumed.codes == [0], resumed.texts
    assert _tree(killed / "generation") == whole

    draw = random.Random(SEED)
    print(f"seed {SEED}")
    shutil.rmtree(killed)
    options = ()
    codes = []
    for _ in range(5):
        codes += infer(killed, *options, after_s=draw.uniform(0.0, 1.5)).codes
        if (killed / "generation").exists():
            options = ("--resume",)
    assert set(codes) <= {-9, 0}
    assert -9 in codes
    assert infer(killed, "--resume").codes == [0]
    assert _tree(killed / "generation") == whole
