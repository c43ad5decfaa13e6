from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from solarwm.data.packing import camera_block
from solarwm.synthetic.clips import Clip
from solarwm.synthetic.renderer import Lens

DATASET = "local"
TIER = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipOrder:
    """All that a worker needs to film one clip."""

    scene: str
    seed: int
    split: str
    index: int
    frames: int
    height: int
    width: int
    fps: float
    lens: Lens

    @property
    def sample_id(self) -> str:
        """Identity in the index, unique to the scene, seed, split and number."""
        return f"{DATASET}/{self.scene}-{self.seed}-{self.split}-{self.index:06d}"


def manifest_of(clip: Clip, order: ClipOrder) -> dict[str, Any]:
    """The manifest member: video, words, camera block, and the recipe that films it again."""
    return {
        "source_sample_id": order.sample_id,
        "video": {
            "num_frames": order.frames,
            "fps": order.fps,
            "width": order.width,
            "height": order.height,
        },
        "prompt": {"text": clip.caption},
        "metadata": {
            "scene": clip.scene.name,
            "scene_kind": clip.scene.kind,
            "path_kind": clip.path.kind,
            "recipe": {
                "scene": order.scene,
                "seed": order.seed,
                "split": order.split,
                "index": order.index,
                "lens": [order.lens.fx, order.lens.fy, order.lens.cx, order.lens.cy],
            },
        },
        "camera": camera_block(order.frames),
    }


def row_of(clip: Clip, order: ClipOrder) -> dict[str, Any]:
    """The index row of a clip, without the identity of its shard."""
    key = order.sample_id.replace("/", "__")
    return {
        "sample_id": order.sample_id,
        "key": key,
        "epoch_repeats": 1,
        "dataset": DATASET,
        "kept_tier": TIER,
        "split": order.split,
        "recipe_role": order.split,
        "num_frames": order.frames,
        "fps": order.fps,
        "width": order.width,
        "height": order.height,
        "caption": clip.caption,
        "video_member": f"{key}.video.mp4",
        "camera_member": f"{key}.camera.npz",
        "intrinsics_member": f"{key}.intrinsics.npy",
        "manifest_member": f"{key}.manifest.json",
    }
