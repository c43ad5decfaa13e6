"""Shell completion: from a table, equal to what Typer would say, in the shell itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from solarwm.cli.completion import TABLE, answer, candidates
from solarwm.config.resolve import resolve

ROOT = Path(__file__).parents[2]
KNOWN: dict[str, Any] = json.loads(TABLE.read_bytes())
BASH = {"_SOLARWM_COMPLETE": "complete_bash"}


def tab(line: str) -> list[str]:
    """The candidates at the end of `line`."""
    words = line.split(" ")
    told = answer({**BASH, "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)})
    assert told is not None
    assert told[1] == 0
    return told[0].splitlines()


def by_typer(given: list[str], incomplete: str) -> set[str]:
    from typer._completion_classes import BashComplete

    from solarwm.cli.lazy import build

    found = BashComplete(build(), {}, "solarwm", "_SOLARWM_COMPLETE").get_completions(
        given, incomplete
    )
    return {item.value for item in found}


@pytest.mark.parametrize("path", sorted(KNOWN["commands"]))
def test_commands_and_options_are_those_typer_knows(path: str) -> None:
    given = path.split()
    ours = {word for word, _ in candidates(KNOWN, given, "--")}
    assert ours == by_typer(given, "--")
    children = KNOWN["commands"][path]["commands"]
    if children:
        assert {word for word, _ in candidates(KNOWN, given, "")} == by_typer(given, "")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("solarwm con", "config"),
        ("solarwm config re", "resolve"),
        ("solarwm config show quickstart/stage0p5-", "quickstart/stage0p5-long"),
        ("solarwm config resolve --config x --set train.optimizer.l", "train.optimizer.lr="),
        ("solarwm explain config.uns", "config.unsupported"),
        ("solarwm train --resume la", "latest"),
        ("solarwm config routes wan22_ti2v_5b:stage1:teacher_forcing:flow", ""),
    ],
)
def test_a_tab_finds_the_one_word_that_fits(line: str, word: str) -> None:
    found = tab(line)
    assert found == ([word] if word else ["wan22_ti2v_5b:stage1:teacher_forcing:flow_matching"])


@pytest.mark.parametrize(
    "line", ["solarwm train --config ", "solarwm run status out", "solarwm x y"]
)
def test_file_names_are_left_to_the_shell(line: str) -> None:
    assert tab(line) == []


def test_offered_keys_of_a_config_can_be_set() -> None:
    keys = set(KNOWN["words"]["key"])
    base = ROOT / "configs" / "examples" / "quickstart" / "stage0p5.yaml"
    assert {"train.optimizer.lr=", "runtime.output_dir=", "data.transport.root="} <= keys
    for key in ("train.optimizer.lr=1e-3", "name=trial", "runtime.log_every=2"):
        assert key.partition("=")[0] + "=" in keys
        resolve(base, [key])


def test_zsh_and_fish_get_help_with_the_words() -> None:
    line = {"_TYPER_COMPLETE_ARGS": "solarwm environment pr"}
    zsh = answer({"_SOLARWM_COMPLETE": "complete_zsh", **line})
    assert zsh is not None
    assert zsh[0].startswith('_arguments \'*: :(("probe":"Python, torch,')
    fish = {"_SOLARWM_COMPLETE": "complete_fish", **line}
    told = answer({**fish, "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
    assert told is not None
    assert told[0].startswith("probe\tPython")
    assert answer({**fish, "_TYPER_COMPLETE_FISH_ACTION": "is-args"}) == ("", 0)
    files = {**fish, "_TYPER_COMPLETE_ARGS": "solarwm train --config x"}
    assert answer({**files, "_TYPER_COMPLETE_FISH_ACTION": "is-args"}) == ("", 1)


@pytest.mark.parametrize("value", ["source_bash", "complete_pwsh", "", "nonsense"])
def test_other_requests_are_left_to_typer(value: str) -> None:
    assert answer({"_SOLARWM_COMPLETE": value}) is None


@pytest.mark.parametrize("line", ["solarwm 'con", 'solarwm config "re', "", "solarwm con\\"])
def test_unfinished_lines_are_no_errors(line: str) -> None:
    answer({**BASH, "COMP_WORDS": line, "COMP_CWORD": "1"})
    answer({**BASH, "COMP_WORDS": line, "COMP_CWORD": "x"})


def test_a_keystroke_imports_neither_typer_nor_the_program() -> None:
    code = (
        "import sys, io, contextlib\n"
        "from solarwm.cli.app import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "names = [n for n in sys.modules if n.startswith('solarwm')]\n"
        "assert 'typer' not in sys.modules and len(names) <= 6, names"
    )
    environ = {**os.environ, **BASH, "COMP_WORDS": "solarwm config re", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "resolve\n"), done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_for_bash_completes_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "solarwm"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m solarwm "$@"\n')
    program.chmod(0o755)
    script = (
        f'eval "$(_SOLARWM_COMPLETE=source_bash {program} || true)"\n'
        "COMP_WORDS=(solarwm config sch) COMP_CWORD=2\n"
        f'_solarwm_completion {program}; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    assert done.stdout == "schema\n", done.stderr
