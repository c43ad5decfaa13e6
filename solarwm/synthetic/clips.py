from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from solarwm.synthetic.captions import caption
from solarwm.synthetic.paths import CameraPath, draw_path, generator
from solarwm.synthetic.renderer import FIXED_LENS, Lens
from solarwm.synthetic.scene import Scene, random_scene, the_room

SceneName = Literal["room", "random"]
SCENE_NAMES: tuple[str, ...] = get_args(SceneName)

_SCENE_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """What is to be filmed: a scene, a camera path through it, and the words for both."""

    scene: Scene
    path: CameraPath
    caption: str


def plan_clip(
    scene: str,
    *,
    seed: int,
    split: str,
    index: int,
    frames: int,
    lens: Lens = FIXED_LENS,
) -> Clip:
    """The clip that `index` of `split` stands for; the same for the same arguments, always.

    `room` is the one fixed world; `random` is a new world for every clip. Splits never share a
    random stream. Rendering `clip.scene` along any other path gives the truth for that path.
    Raises ValueError for an unknown scene name.
    """
    if scene not in SCENE_NAMES:
        raise ValueError(f"scene must be one of {', '.join(SCENE_NAMES)}, got {scene!r}")
    place, path = _draw(scene, seed=seed, split=split, index=index, frames=frames)
    return Clip(scene=place, path=path, caption=caption(place, path, lens=lens))


def _draw(
    scene: str, *, seed: int, split: str, index: int, frames: int
) -> tuple[Scene, CameraPath]:
    paths = generator(seed, f"{scene}/{split}/path", index)
    if scene == "room":
        place = the_room()
        return place, draw_path(place, paths, frames=frames)
    scenes = generator(seed, f"{scene}/{split}/scene", index)
    for _ in range(_SCENE_TRIES):
        place = random_scene(scenes)
        try:
            return place, draw_path(place, paths, frames=frames)
        except ValueError:
            # Too crowded for the drawn kind of path: build another scene.
            continue
    raise ValueError(f"no scene with room for a path in {_SCENE_TRIES} tries")
