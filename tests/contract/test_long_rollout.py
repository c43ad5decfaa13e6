"""A picture driven along a camera of 10,000 frames through the command line: whole, and in the memory of
one of 625."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from solarwm.data.video import count_frames

CONFIG = Path(__file__).parents[2] / "configs" / "examples" / "quickstart" / "infer-stage2.yaml"
SIZE, SHORT, LONG = 32, 625, 10_000
# Large blocks of memory go back at once, so that what is held is what is used.
PEAK = """
import ctypes
import resource
if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(-3, 1 << 16)
import solarwm.cli.app as app
from pathlib import Path
from solarwm.inference.video import VideoWriter
write, held = VideoWriter.write, []
def watched(self, frames):
    write(self, frames)
    held.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
VideoWriter.write = watched
real = app.run
def run(arguments):
    code = real(arguments)
    print("path", *held[:: max(1, len(held) // 20)])
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return code
app.run = run
"""


def _infer(warm, weights: Path, root: Path, frames: int):
    picture, camera = root.parent / "first.png", root.parent / f"camera-{frames}.npz"
    pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(picture)
    c2w_N44 = np.tile(np.eye(4), (frames, 1, 1))
    c2w_N44[:, 2, 3] = 5 * np.sin(np.arange(frames) / 400)
    np.savez(camera, c2w=c2w_N44)
    one_pass = {
        "name": "long",
        "weights": "live",
        "solver": "self_forcing",
        "num_inference_steps": 1,
        "rollout_latent_frames": 9,
    }
    values = {
        "model.max_prior_clean_chunks": 1,
        "data.pixel_frames": 33,
        "data.height": SIZE,
        "data.width": SIZE,
        "distributed.world_size": 1,
        "train.delta_policy": "drop",
        "validation.passes": json.dumps([one_pass]),
        "checkpoint.path": weights,
        "checkpoint.weights": "live",
        "runtime.output_dir": root,
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    own = ["--image", str(picture), "--camera", str(camera)]
    return warm.launch(root, ["infer", "--config", str(CONFIG), *words, *own], patch=PEAK)


def test_ten_thousand_frames_take_the_memory_of_six_hundred(warm, drawn_weights, tmp_path) -> None:
    peaks = {}
    for frames in (SHORT, LONG):
        ended = _infer(warm, drawn_weights, tmp_path / f"run-{frames}", frames)
        assert ended.codes == [0], ended.texts
        peaks[frames] = int(ended.texts[0].rsplit("peak ", 1)[1])
        path = [int(word) for word in ended.texts[0].rsplit("path ", 1)[1].split("\n")[0].split()]
        slot = ended.root / "generation" / "long" / "slot-000000"
        video = (slot / "video.mp4").read_bytes()
        covered = -(-(frames + 3) // 12) * 12 - 3  # whole chunks of three latents
        assert count_frames(video, sample_id="long") == covered
        assert len(np.load(slot / "camera.npy")) == covered
    schedule = json.loads((slot / "schedule.json").read_bytes())
    assert schedule["decode_tile_latents"] == 12
    assert peaks[LONG] <= 1.1 * peaks[SHORT]
    # Frames that were kept would add half of their bytes between the two halves of the way.
    assert len(path) >= 20
    assert median(path[10:]) - median(path[1:10]) < 0.25 * LONG * SIZE * SIZE * 3
