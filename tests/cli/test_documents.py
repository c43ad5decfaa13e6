"""Every command shown in README and docs is run, or parsed against the real options (design 6)."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/**/*.md"),
        REPOSITORY / "environments" / "README.md",
    ]
    if path.name != "LICENSE"
)
FENCE = re.compile(r"^ *```bash\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
RUN_COMMANDS = {"train", "infer", "preencode"}
READS_A_RUN = {"run", "checkpoint", "play", "preflight", "validation"}


def commands() -> list[tuple[str, str]]:
    """(page, command line) of every bash fence, continuation lines joined."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for block in FENCE.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                text = line.strip()
                if text and not text.startswith("#"):
                    found.append((str(page.relative_to(REPOSITORY)), text))
    return sorted(set(found))


def test_documents_show_commands() -> None:
    assert len(commands()) > 20


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A scratch folder that looks like a checkout."""
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    return tmp_path


@pytest.mark.parametrize(("page", "line"), commands())
def test_command_in_document_works(page: str, line: str, workplace: Path) -> None:
    line = line.replace("$PWD", str(workplace))
    words = shlex.split(line)
    if words[0] == "make":
        done = subprocess.run(
            ["make", "--dry-run", *words[1:]],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return
    if words[0].startswith("tools/"):
        assert os.access(REPOSITORY / words[0], os.X_OK), f"{page}: {words[0]} is not there"
        return
    words = _few_clips(_without_torchrun(words))
    assert words[0] == "solarwm", f"{page}: {line}: not a command this test knows"
    check_solarwm(words[1:], workplace)


def _without_torchrun(words: list[str]) -> list[str]:
    if words[0] != "torchrun":
        return words
    module = words.index("-m")
    assert words[module + 1] == "solarwm"
    return ["solarwm", *words[module + 2 :]]


def _few_clips(words: list[str]) -> list[str]:
    """A world of two clips instead of hundreds: the options stay the documented ones."""
    if "--clips" not in words:
        return words
    place = words.index("--clips") + 1
    return [*words[:place], "2", *words[place + 1 :]]


def check_solarwm(arguments: list[str], workplace: Path) -> None:
    """Run it; a command that starts a run is given --dry-run, one that reads a run is only parsed."""
    name = arguments[0]
    starts_a_run = name in RUN_COMMANDS
    if starts_a_run and "--dry-run" not in arguments:
        arguments = [*arguments, "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "solarwm", *arguments, "--json"],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "Traceback" not in done.stderr
    assert "cli.usage" not in done.stderr + done.stdout, done.stderr
    if starts_a_run:
        # A documented path may not exist here (placeholders, no launcher): any code of a real start but a bug.
        assert done.returncode in (0, 2, 3, 5), done.stderr
    elif name not in READS_A_RUN and not _names_a_missing_file(arguments, workplace):
        assert done.returncode == 0 or "--strict" in arguments, done.stderr
    else:
        assert done.returncode in (0, 2, 3), done.stderr


def _names_a_missing_file(arguments: list[str], workplace: Path) -> bool:
    outputs = {
        after for word, after in itertools.pairwise(arguments) if word in ("--output", "--out")
    }
    paths = [
        word for word in arguments if re.fullmatch(r"[^-=][^=]*(/[^=]*|\.(yaml|json|gz))", word)
    ]
    return any(not (workplace / path).exists() for path in paths if path not in outputs)


def test_reference_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/write_reference.py", "--check"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_inside_the_documents_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert not broken
