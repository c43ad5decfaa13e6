"""Two runs and one directory: the second start is refused before it writes anything."""

from __future__ import annotations

import hashlib
from pathlib import Path

from solarwm.storage.locks import DirectoryLock


def _state(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_second_start_in_a_finished_run_is_refused_and_changes_nothing(
    warm, tmp_path: Path
) -> None:
    first = warm.train(tmp_path / "run", "train.max_steps=1")
    before = _state(first.root)
    second = warm.train(tmp_path / "run", "train.max_steps=1")
    assert second.codes == [2]
    assert "run.directory-taken" in second.texts[0]
    assert _state(first.root) == before


def test_a_start_in_a_directory_that_a_live_run_holds_is_refused(warm, tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    with DirectoryLock(root):
        before = _state(root)
        ended = warm.train(root, options=("--resume", "latest", "--allow-fresh"))
        assert ended.codes == [2]
        assert "run.directory-busy" in ended.texts[0]
        assert _state(root) == before


def test_a_run_directory_that_cannot_be_made_ends_with_code_five(warm, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("notes\n")
    place = tmp_path / "file" / "run"
    refused = warm.train(tmp_path / "logs", f"runtime.output_dir={place}")
    assert refused.codes == [5]
    assert "Traceback" not in refused.texts[0]
    assert str(place) in refused.texts[0]
    assert (tmp_path / "file").read_text() == "notes\n"


def test_resume_without_a_checkpoint_needs_allow_fresh(warm, tmp_path: Path) -> None:
    root = tmp_path / "run"
    refused = warm.train(root, "train.max_steps=1", options=("--resume", "latest"))
    assert refused.codes == [3]
    assert not root.exists()
    fresh = warm.train(root, "train.max_steps=1", options=("--resume", "latest", "--allow-fresh"))
    assert fresh.codes == [0]


def test_launcher_variables_that_do_not_fit_the_config_end_with_code_five(
    warm, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    alone = warm.train(root, "train.grad_accum=1", "distributed.world_size=2")
    assert alone.codes == [5]
    assert "launcher.mismatch" in alone.texts[0]
    partial = warm.train(root, env={"RANK": "0"})
    assert partial.codes == [5]
    for word in ("WORLD_SIZE not set", "RANK=0"):
        assert word in partial.texts[0]
    assert not root.exists()
