"""Which trackers a run has, from `runtime.trackers` and from what is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from solarwm.trackers.fanout import Fanout
from solarwm.trackers.seam import Tracker
from solarwm.trackers.services import ServiceTracker
from solarwm.trackers.tensorboard import TensorBoardTracker
from solarwm.trackers.terminal import TerminalTracker


def open_trackers(
    runtime: Any,
    *,
    installed: Callable[[str], bool] = lambda name: find_spec(name) is not None,
    terminal: bool = True,
) -> Fanout:
    """The fan-out of one run's trackers. A package that is not installed leaves its tracker out."""
    chosen: list[Tracker] = []
    if terminal:
        chosen.append(TerminalTracker(log_every=getattr(runtime, "log_every", None) or 10))
    modes = getattr(runtime, "trackers", None)
    if getattr(modes, "tensorboard", "online") != "off" and installed("tensorboard"):
        chosen.append(TensorBoardTracker())
    for name in ("wandb", "trackio"):
        mode = getattr(modes, name, "off")
        if mode != "off" and installed(name):
            chosen.append(ServiceTracker(name, mode=mode))
    return Fanout(chosen, note=lambda text: print(text, file=sys.stderr, flush=True))
