"""Weights & Biases and Trackio: two packages with one interface, both optional."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any


class ServiceTracker:
    """A package that offers `init`, `log` and `finish`; `mode` is online or offline."""

    def __init__(self, name: str, *, mode: str) -> None:
        self.name = name
        self._mode = mode
        self._package: Any = None

    def start(self, facts: Mapping[str, Any]) -> None:
        """Open a run named like ours. Offline keeps everything under the run directory."""
        self._package = importlib.import_module(self.name)
        options: dict[str, Any] = {
            "project": "solarwm",
            "name": facts["name"],
            "config": dict(facts),
        }
        if self.name == "wandb":
            options |= {"mode": self._mode, "dir": str(facts["run_path"]), "resume": "allow"}
        else:
            os.environ.setdefault("TRACKIO_DIR", str(facts["run_path"]))
        self._package.init(**options)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One point on each curve."""
        self._package.log(dict(values), step=step)

    def event(self, record: Mapping[str, Any]) -> None:
        """Other events stay in the event stream."""

    def close(self, outcome: str) -> None:
        """End the run at the service."""
        self._package.finish()
