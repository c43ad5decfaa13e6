from __future__ import annotations

import numpy as np

from solarwm.synthetic.paths import CameraPath
from solarwm.synthetic.renderer import FIXED_LENS, Lens, cast
from solarwm.synthetic.scene import FACES, Scene

_LEAST_SHARE = 0.01
_PLACES = {"room": "A room", "outdoor": "Open ground under a clear sky"}


def caption(scene: Scene, path: CameraPath, *, lens: Lens = FIXED_LENS) -> str:
    """One line that names the objects in view, the largest first, and how the camera moves."""
    seen = visible_objects(scene, path, lens=lens)
    place = _PLACES[scene.kind]
    if seen:
        place = f"{place} with {_listed([_with_article(name) for name in seen])}"
    return f"{place}. The camera {path.motion}."


def visible_objects(scene: Scene, path: CameraPath, *, lens: Lens = FIXED_LENS) -> tuple[str, ...]:
    """Names of the objects that cover 1 % of the first, middle or last frame, largest first."""
    frames = path.c2w[[0, len(path.c2w) // 2, -1]]
    surface = cast(scene, frames, lens=lens, height=36, width=54).surface
    names = scene.surface_names()
    shares: dict[str, float] = {}
    for index in range(len(FACES), len(names)):
        share = float((surface == index).mean(axis=(1, 2)).max())
        shares[names[index]] = max(share, shares.get(names[index], 0.0))
    seen = [name for name, share in shares.items() if share >= _LEAST_SHARE]
    return tuple(sorted(seen, key=lambda name: (-np.round(shares[name], 4), name)))


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
