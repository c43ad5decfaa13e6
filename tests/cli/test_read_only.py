"""The config desk where nothing can be written: the checkout and the working directory are read-only."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = "configs/examples/quickstart/stage0p5.yaml"
READS = [
    "--help",
    "config routes",
    "config list",
    "config show quickstart/stage0p5",
    f"config resolve --config {QUICK}",
    f"config check {QUICK} configs/examples/wan22_ti2v_5b/train_stage0p5_fm_81f.yaml",
    f"config diff {QUICK} configs/examples/quickstart/stage0p5-long.yaml",
    "config schema --route wan22_ti2v_5b:stage0p5:bidirectional:flow_matching",
    "explain config.batch",
]
WRITES = [
    "config copy quickstart/stage0p5 here",
    "config copy quickstart/stage0p5 .",
    f"config resolve --config {QUICK} --output resolved.json",
    f"config resolve --config {QUICK} --output a/b/resolved.json",
]
_LOCK = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && ! touch probe 2>/dev/null'


def locked(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a mount namespace of its own, in which the checkout is read-only."""
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{_LOCK} || exit 77\n{script}", "sh", str(ROOT)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PY": sys.executable},
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def ended() -> dict[str, tuple[int, str]]:
    """Exit code and standard error of every command."""
    if shutil.which("unshare") is None or locked("true").returncode != 0:
        pytest.skip("a read-only mount needs privileges here")
    lines = [
        f'"$PY" -m solarwm {command} >/dev/null 2>"$T"; '
        f"\"$PY\" -c 'import json,sys; print(json.dumps(sys.argv[1:]))' "
        f'{shlex.quote(command)} $? "$(cat "$T")"'
        for command in (*READS, *WRITES)
    ]
    done = locked("T=$(mktemp)\n" + "\n".join(lines) + '\nrm "$T"')
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {command: (int(code), text) for command, code, text in rows}


@pytest.mark.parametrize("command", READS)
def test_a_command_that_writes_nothing_works(
    command: str, ended: dict[str, tuple[int, str]]
) -> None:
    assert ended[command][0] == 0, ended[command][1]


@pytest.mark.parametrize("command", WRITES)
def test_a_command_that_writes_says_where_it_cannot(
    command: str, ended: dict[str, tuple[int, str]]
) -> None:
    code, text = ended[command]
    assert (code, "disk.read-only" in text) == (5, True), text
    assert "Traceback" not in text
    assert ".partial" not in text
