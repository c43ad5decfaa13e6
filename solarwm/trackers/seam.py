"""The seam of every view on a run: it is told events, and training never depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Tracker(Protocol):
    """One place where a run is shown. May raise or block: it is called from a thread of its own."""

    name: str

    def start(self, facts: Mapping[str, Any]) -> None:
        """Open the view. `facts`: name, route, run_path, max_steps, first_step, world_size,
        global_batch_size."""
        ...

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of one optimizer step, by dotted name."""
        ...

    def event(self, record: Mapping[str, Any]) -> None:
        """Any other event, as it stands in the event stream."""
        ...

    def close(self, outcome: str) -> None:
        """The run has ended: `complete`, `interrupted` or `failed`."""
        ...


def step_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an `optimizer_step` event worth a curve."""
    values = {f"loss.{name}": float(value) for name, value in record["losses"].items()}
    for name in (
        "gradient_norm",
        "lr",
        "step_time_s",
        "data_wait_s",
        "samples_per_s",
        "resident_bytes",
    ):
        if name in record:
            values[name] = float(record[name])
    return values
