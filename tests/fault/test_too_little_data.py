"""Data that cannot fill a step end a start before anything is written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path


def test_fewer_samples_than_one_global_batch_are_refused_with_both_numbers(
    warm, small_world: Path, tmp_path: Path
) -> None:
    rows = gzip.decompress((small_world / "train-index.jsonl.gz").read_bytes()).splitlines()
    index = tmp_path / "few.jsonl"
    index.write_bytes(b"\n".join(rows[:3]) + b"\n")
    sets = (f"data.index_root={tmp_path}", "data.train_index=few.jsonl")
    ended = warm.train(tmp_path / "run", *sets)
    assert ended.codes == [3]
    assert "data.too-few-samples" in ended.texts[0]
    assert "3 samples do not fill one global batch of 4" in ended.texts[0]
    assert not (tmp_path / "run").exists()
    row = json.loads(rows[0])
    index.write_text("".join(json.dumps({**row, "epoch_repeats": n}) + "\n" for n in [4]))
    assert warm.train(tmp_path / "run", *sets, "train.max_steps=1").codes == [0]
