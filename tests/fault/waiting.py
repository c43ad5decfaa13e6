"""What tests that interfere with a live run share."""

from __future__ import annotations

import time
from pathlib import Path

SLOW = """
import time
from solarwm.training import loop
real = loop._one_step
def one_step(*args, **more):
    time.sleep({pause})
    return real(*args, **more)
loop._one_step = one_step
"""


def wait_for_step(root: Path, step: int, world_rank: int = 0) -> None:
    """Until the event stream of a rank tells of `step`, at most two minutes."""
    path = root / "events" / f"rank-{world_rank:05d}.jsonl"
    deadline = time.monotonic() + 120
    result = root / "run-result.json"
    while time.monotonic() < deadline:
        if path.exists() and f'"step":{step},' in path.read_text():
            return
        assert not result.exists(), result.read_text()
        time.sleep(0.05)
    raise AssertionError(f"step {step} was never reached")
