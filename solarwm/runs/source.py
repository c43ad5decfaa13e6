"""Which source and which surroundings a run was started from, as far as can be told without
importing them.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from solarwm import __version__
from solarwm.storage.digests import blake2s_hex

PACKAGES = (
    "torch",
    "diffusers",
    "transformers",
    "peft",
    "safetensors",
    "numpy",
    "av",
    "pydantic",
    "typer",
)
LAUNCHER_VARIABLES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "GROUP_WORLD_SIZE")
_GIT_TIMEOUT_S = 10


def source_facts(package_root: Path) -> dict[str, Any]:
    """The published `source` block: commit, tree and cleanliness of the checkout the package runs
    from.

    `available` is False outside a git checkout or without git; the rest is then null.
    """
    root = _git(package_root, "rev-parse", "--show-toplevel")
    tracked = root and _git(package_root, "ls-files", "--error-unmatch", "__init__.py")
    commit = _git(package_root, "rev-parse", "HEAD") if tracked else None
    if not root or not commit:
        return dict.fromkeys(("root", "commit", "tree", "clean", "status_digest")) | {
            "available": False
        }
    status = _git(Path(root), "status", "--porcelain=v1", "--untracked-files=normal")
    return {
        "available": True,
        "root": root,
        "commit": commit,
        "tree": _git(package_root, "rev-parse", "HEAD^{tree}"),
        "clean": status == "",
        "status_digest": blake2s_hex((status or "").encode()),
    }


def environment_facts(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Versions of Python and packages, the platform, and the launcher's numbers. No other
    variables.
    """
    return {
        "solarwm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "launcher": {name: environ[name] for name in LAUNCHER_VARIABLES if name in environ},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
