from __future__ import annotations

import io
import json
from pathlib import Path

import av
import numpy as np
import pytest

import solarwm.backbones
from solarwm.synthetic.clips import plan_clip
from solarwm.synthetic.renderer import render
from solarwm.synthetic.video import encode_mp4

FOLDER = Path(solarwm.backbones.__file__).parent / "wan22_core"


def held_out_clip(index: int) -> np.ndarray:
    clip = plan_clip("room", seed=404, split="test", index=index, frames=81)
    pixels = render(clip.scene, clip.path.c2w, height=64, width=96)
    with av.open(io.BytesIO(encode_mp4(pixels, fps=16.0))) as container:
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])


def psnr(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    error = np.square(a.astype(np.float64) - b).mean(axis=(1, 2, 3)) / 255.0**2
    return -10.0 * np.log10(np.maximum(error, 1e-10))


def test_the_shipped_weights_are_small_and_described() -> None:
    document = json.loads((FOLDER / "tiny_vae.json").read_text())
    assert (FOLDER / "tiny_vae.safetensors").stat().st_size < 2_000_000
    assert document["class"] == "AutoencoderKLWan"
    assert len(document["arguments"]["latents_mean"]) == document["arguments"]["z_dim"] == 48
    assert min(document["arguments"]["latents_std"]) > 0.0
    assert {"provenance", "figures"} <= set(document)


def test_whole_held_out_clips_come_back_well_above_a_still() -> None:
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")
    from safetensors.torch import load_file

    arguments = json.loads((FOLDER / "tiny_vae.json").read_text())["arguments"]
    vae = diffusers.AutoencoderKLWan(**arguments).eval()
    state = load_file(FOLDER / "tiny_vae.safetensors")
    vae.load_state_dict({key: value.float() for key, value in state.items()})

    def course_of(truth: np.ndarray) -> np.ndarray:
        video = torch.from_numpy(truth.copy()).permute(3, 0, 1, 2)[None].float() / 127.5 - 1.0
        shown = vae.decode(vae.encode(video).latent_dist.mode()).sample[0]
        return psnr(((shown.clamp(-1, 1) + 1.0) * 127.5).permute(1, 2, 3, 0).numpy(), truth)

    # Clips set out from one spot and end in rarer views, which are harder. Over both directions the
    # first and the last quarter hold the same pictures: what they differ by is the VAE's drift.
    forward, backward, stills = [], [], []
    with torch.no_grad():
        for index in range(3):
            truth = held_out_clip(index)
            forward.append(course_of(truth))
            backward.append(course_of(truth[::-1]))
            stills.append(psnr(np.broadcast_to(truth[:1], truth.shape), truth)[1:].mean())
    onwards = np.mean(forward, axis=0)
    assert onwards[1:].mean() >= np.mean(stills) + 5.0
    assert onwards[0] >= onwards[1:].mean() - 1.0
    both = np.mean([*forward, *backward], axis=0)
    assert abs(both[1:21].mean() - both[-20:].mean()) <= 1.0
    assert both[0] >= both[-1] - 1.0
