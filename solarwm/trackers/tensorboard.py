"""The run's curves as TensorBoard files under `RUN/tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoardTracker:
    """One scalar a curve; texts for checkpoints. Needs the package tensorboard, imported by
    `start`."""

    name = "tensorboard"

    def __init__(self) -> None:
        self._writer: Any = None

    def start(self, facts: Mapping[str, Any]) -> None:
        """Open the event file; a resume adds a file beside the earlier one."""
        from torch.utils.tensorboard import SummaryWriter

        run_path = Path(str(facts["run_path"]))
        self._writer = SummaryWriter(
            log_dir=str(run_path / "tensorboard"),
            purge_step=int(facts["first_step"]) + 1,
            flush_secs=10,
        )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One point on each curve."""
        for name, value in values.items():
            self._writer.add_scalar(name.replace(".", "/"), value, step)

    def event(self, record: Mapping[str, Any]) -> None:
        """Checkpoints as texts; other events have no place here."""
        if record.get("event") == "checkpoint":
            self._writer.add_text(
                "checkpoint", str(record.get("checkpoint_id")), int(record.get("step", 0))
            )

    def close(self, outcome: str) -> None:
        """Flush and close."""
        self._writer.add_text("outcome", outcome)
        self._writer.close()
