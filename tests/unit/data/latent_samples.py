"""Sound tensors of a tiny record of every family, made from numbers alone."""

from __future__ import annotations

import numpy as np

from solarwm.config.route import load
from solarwm.data.latent_records import camera_rows
from solarwm.data.record_contracts import EncoderContract, contract_of
from solarwm.data.stored_tensors import StoredTensor, stored
from solarwm.routes.table import ROOMS

FAMILIES = ("wan22_ti2v_5b", "wan22_i2v_a14b", "ltx25_video", "minimax_h3")
FRAMES = {"minimax_h3": 39}
START = 7


def contract(family: str, **changes) -> EncoderContract:
    profile = load(f"{ROOMS[family]}.spec:SPEC").profiles["tiny"]
    size = {"pixel_frames": FRAMES.get(family, 33), "height": 64, "width": 96} | changes
    return contract_of(family, profile, **size)


def tensors(made: EncoderContract, seed: int = 0) -> dict[str, StoredTensor]:
    draw = np.random.default_rng(seed)
    found: dict[str, StoredTensor] = {}
    for name, rule in made.stored.items():
        shape = tuple(5 if size is None else size for size in rule.shape)
        array: np.ndarray = draw.standard_normal(shape)
        if name in ("source_indices", "source_frame_indices"):
            array = START + np.arange(shape[0])
        elif name == "camera_source_indices":
            array = START + np.array(camera_rows(made.family, made.latent_frames))
        elif name == "prompt_attention_mask":
            array = np.arange(shape[0]) >= shape[0] - 4
        elif name == "text_token_tags":
            array = np.array([0, 0, 1, 1, 1])
        elif name in ("relative_w2c", "camera_c2w"):
            array = np.tile(np.eye(4), (shape[0], 1, 1))
            array[:, 0, 3] = 0.01 * np.arange(shape[0])
        elif name == "camera_K":
            array = np.tile([[0.5, 0, 0.5], [0, 0.9, 0.5], [0, 0, 1.0]], (shape[0], 1, 1))
        elif name == "i2v_y":
            array[:, :4] = 0
            array[0, :4] = 1
        elif name == "first_frame_latent":
            found[name] = StoredTensor(
                rule.dtype, np.ascontiguousarray(found["video_latent"].array[:, :1])
            )
            continue
        found[name] = stored(array, rule.dtype)
    return found
