"""tools/ci_preflight.sh, and `make` with package indexes: real shells, stubs where a network would be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "configs" / "examples" / "quickstart" / "stage0p5.yaml"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """`solarwm` as an executable of this checkout."""
    path = tmp_path / "bin" / "solarwm"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m solarwm "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A folder with one config whose paths are filled in."""
    folder = tmp_path / "mine"
    folder.mkdir()
    text = EXAMPLE.read_text().replace("/path/to/", "/data/")
    (folder / "train.yaml").write_text(text)
    return folder


def preflight(program: Path, configs: Path, *, code: int) -> str:
    done = subprocess.run(
        [ROOT / "tools" / "ci_preflight.sh", configs, configs.parent / "previews"],
        capture_output=True,
        text=True,
        env={**os.environ, "SOLARWM": str(program)},
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def resolve(program: Path, configs: Path, name: str, *sets: str) -> Path:
    preview = configs.parent / "previews" / f"{name}.json"
    words = [word for text in sets for word in ("--set", text)]
    subprocess.run(
        [
            program,
            "config",
            "resolve",
            "--config",
            configs / f"{name}.yaml",
            *words,
            "--output",
            preview,
        ],
        check=True,
    )
    return preview


def test_sound_configs_pass_and_every_kind_of_fault_is_named(program: Path, configs: Path) -> None:
    assert "no preview; run:" in preflight(program, configs, code=2)
    preview = resolve(program, configs, "train")
    assert "ok" in preflight(program, configs, code=0)

    resolve(program, configs, "train", "train.optimizer.lr=9e-4")
    assert "the preview is out of date" in preflight(program, configs, code=2)

    preview.write_text(preview.read_text().replace('"seed"', '"sead"'))
    (configs / "z_last.yaml").write_text(EXAMPLE.read_text())
    resolve(program, configs, "z_last")
    told = preflight(program, configs, code=2)
    assert "config.stale-digest" in told
    assert "config.placeholder" in told  # the file after the bad one is looked at too


def test_a_bad_config_and_an_empty_folder_are_refused(program: Path, configs: Path) -> None:
    (configs / "train.yaml").write_text("schema: solarwm.run.v1\n")
    assert "config.missing-key" in preflight(program, configs, code=2)
    (configs / "train.yaml").unlink()
    assert "no *.yaml" in preflight(program, configs, code=2)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("by_option", [False, True])
def test_make_hands_package_indexes_to_pip(by_option: bool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stub = tmp_path / "python"
    stub.write_text(
        "#!/bin/sh\n"
        f'echo "$PIP_INDEX_URL $PIP_EXTRA_INDEX_URL $*" >> "{log}"\n'
        'if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi\n'
    )
    stub.chmod(0o755)
    indexes = {
        "PIP_INDEX_URL": "https://index.invalid/simple",
        "PIP_EXTRA_INDEX_URL": "https://more.invalid/simple",
    }
    words = [f"{key}={value}" for key, value in indexes.items()] if by_option else []
    subprocess.run(
        ["make", "setup", f"PYTHON={stub}", f"VENV={tmp_path / 'venv'}", *words],
        cwd=ROOT,
        env={**os.environ, **({} if by_option else indexes)},
        check=True,
        capture_output=True,
    )
    lines = log.read_text().splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == 2
    assert all(line.startswith(" ".join(indexes.values())) for line in installs)
    assert "-c environments/cpu.txt" in installs[-1]
