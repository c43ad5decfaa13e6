"""Checkpoints of a run are copied to an object store, and a run that lost its disk goes on from there."""

from __future__ import annotations

import shutil
from pathlib import Path

from solarwm.checkpoints.object_root import ObjectRoot
from tests.conftest import WarmRanks
from tests.distributed.test_training import _assert_equal


def test_a_run_that_lost_its_disk_goes_on_from_the_copies(warm: WarmRanks, tmp_path: Path) -> None:
    root, store = tmp_path / "run", ObjectRoot(f"file://{tmp_path}/bucket/run")
    sets = (f"checkpoint.copy_to={store.address}", "runtime.save_every=1", "checkpoint.keep_last=2")
    first = warm.train(root, *sets, options=("--stop-after", "2"), world_size=2)
    assert first.codes == [0, 0]
    copied = first.events(kind="checkpoint_copied")
    assert [event["step"] for event in copied] == [1, 2]
    assert not first.events(1, kind="checkpoint_copied")
    assert len(store.listing().complete) == 2
    shutil.rmtree(root)
    store.fetch(root)
    again = warm.train(root, *sets, options=("--resume", "latest"), world_size=2)
    assert again.codes == [0, 0]
    assert [event["step"] for event in again.events()] == [3, 4]
    assert store.listing().complete == ("checkpoint_model_000003", "checkpoint_model_000004")
    plain = warm.train(tmp_path / "plain", world_size=2)
    _assert_equal(root / "checkpoint_model_000004", plain.root / "checkpoint_model_000004")


def test_a_copy_that_fails_ends_the_run_and_leaves_its_checkpoints(
    warm: WarmRanks, tmp_path: Path
) -> None:
    (tmp_path / "bucket").write_text("in the way")
    ended = warm.train(tmp_path / "run", f"checkpoint.copy_to=file://{tmp_path}/bucket/run")
    assert ended.codes == [5]
    assert (ended.result["code"], ended.result["phase"]) == ("store.no-answer", "train")
    assert [path.name for path in ended.root.glob("checkpoint_*")] == ["checkpoint_model_000002"]
