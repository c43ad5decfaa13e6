"""Where everything of a run lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The paths of one run directory. Makes nothing."""

    root: Path

    @property
    def resolved_config(self) -> Path:
        """The canonical JSON of the resolved config."""
        return self.root / "resolved-config.json"

    @property
    def launch_manifest(self) -> Path:
        """What was started, from which source, in which surroundings."""
        return self.root / "launch-manifest.json"

    @property
    def result(self) -> Path:
        """How the run ended; absent while it runs and after a kill."""
        return self.root / "run-result.json"

    @property
    def events(self) -> Path:
        """The directory of event streams."""
        return self.root / "events"

    @property
    def ranks(self) -> Path:
        """The directory of failure records."""
        return self.root / "ranks"

    @property
    def heartbeats(self) -> Path:
        """The directory of heartbeats."""
        return self.root / "heartbeats"

    def event_stream(self, world_rank: int) -> Path:
        """The event stream of one rank."""
        return self.events / f"rank-{world_rank:05d}.jsonl"

    def failure(self, world_rank: int) -> Path:
        """The failure record of one rank."""
        return self.ranks / f"rank-{world_rank:05d}.failure.json"

    def heartbeat(self, world_rank: int) -> Path:
        """The heartbeat of one rank."""
        return self.heartbeats / f"rank-{world_rank:05d}.json"
