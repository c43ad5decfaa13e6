"""Camera-controlled video world models: one command line from config to rollout."""

from __future__ import annotations

__version__ = "0.1.0"
