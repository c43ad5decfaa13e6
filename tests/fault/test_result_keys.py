"""However a training ends, its result has the documented keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from solarwm.runs.diagnosis import diagnose

PAGE = Path(__file__).parents[2] / "docs" / "runs.md"
ACT = """
import os, signal
from solarwm.training import loop
real = loop._one_step
def one_step(*args, step, **more):
    if step == 2 and os.environ.get("RANK", "0") == "{rank}":
        {act}
    return real(*args, step=step, **more)
loop._one_step = one_step
"""
ENDINGS = {
    "complete": ("pass", "complete", 0),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM)", "interrupted", 143),
    "interrupted": ("os.kill(os.getpid(), signal.SIGINT)", "interrupted", 130),
    "bug": ("raise KeyError('made to fail')", "failed", 70),
    "out of memory": ("raise MemoryError", "failed", 5),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "failed", 6),
}
VERDICTS = {
    "complete": "complete",
    "terminated": "interrupted",
    "interrupted": "interrupted",
    "bug": "bug",
    "out of memory": "out-of-memory",
    "killed": "rank-lost",
}


def _documented() -> tuple[set[str], set[str]]:
    """The keys of every result, and those of a failure, from the page for operators."""
    text = PAGE.read_text()
    start = text.index("`run-result.json` always has")
    always, _, rest = text[start : text.index("\n\n", start)].partition("A failure adds")
    failure = rest.partition(", and what is known of")[0]
    words = set(re.findall(r"`([a-z_]+)`", always)) - {"complete", "failed", "interrupted"}
    return words, set(re.findall(r"`([a-z_]+)`", failure))


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_writes_the_documented_keys(warm, tmp_path: Path, name: str) -> None:
    act, status, code = ENDINGS[name]
    ended = warm.train(tmp_path / "run", world_size=2, patch=ACT.format(rank=1, act=act))
    result = ended.result
    always, failure = _documented()
    assert len(always) >= 10
    assert always <= set(result)
    assert (result["status"], result["exit_code"]) == (status, code)
    assert result["last_checkpoint_step"] in (2, 3, 4)
    assert result["schema"] == "solarwm.run-result.v1"
    if status == "failed":
        assert failure <= set(result)
        assert result["first_failing_rank"] == 1
    if status == "interrupted":
        assert "stopped_rank" in result
    found = diagnose(ended.root)
    assert found.verdict == VERDICTS[name]
    assert found.evidence
    assert found.is_fault == (status == "failed")
    assert not found.is_fault or found.fixes
