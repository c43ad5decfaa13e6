"""A rank whose work takes longer is named by every step's event, by `straggler` and by `run status`."""

from __future__ import annotations

from pathlib import Path

from solarwm.runs.status import read_status
from tests.conftest import WarmRanks

SLOW = """
import os, time
from solarwm.training import stage
real = stage.SingleRoleStage.backward
def backward(self, *args, **more):
    if os.environ["RANK"] == "1":
        time.sleep(1.0)
    return real(self, *args, **more)
stage.SingleRoleStage.backward = backward
"""


def test_a_slow_rank_is_named(warm: WarmRanks, tmp_path: Path) -> None:
    sets = ("train.max_steps=6", "runtime.save_every=0")
    ended = warm.train(tmp_path / "run", *sets, world_size=2, patch=SLOW)
    assert ended.codes == [0, 0]
    for rank in (0, 1):
        steps = ended.events(rank)
        assert [event["slowest_rank"] for event in steps] == [1] * 6
        assert all(event["slowest_rank_s"] > 1.0 for event in steps)
    (told,) = ended.events(kind="straggler")
    assert (told["slowest_rank"], told["step"], told["waits_for"]) == (1, 5, "compute")
    assert read_status(ended.root).figures["slowest_rank"] == 1
