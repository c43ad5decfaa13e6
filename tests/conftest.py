"""What tests of running processes share: a small world, and ranks forked from one warm process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
ROOT = Path(__file__).parent.parent
QUICKSTART = ROOT / "configs" / "examples" / "quickstart" / "stage0p5.yaml"
os.environ.setdefault("OMP_NUM_THREADS", "1")


@dataclass(frozen=True)
class Ended:
    """How a launch ended: exit codes and seconds by rank, what each printed, and its run directory."""

    codes: list[int]
    seconds: list[float]
    texts: list[str]
    root: Path

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.root / "run-result.json").read_text())

    def failure(self, world_rank: int) -> dict[str, Any]:
        return json.loads((self.root / "ranks" / f"rank-{world_rank:05d}.failure.json").read_text())

    def events(self, world_rank: int = 0, kind: str = "optimizer_step") -> list[dict[str, Any]]:
        return read_events(self.root, world_rank, kind)


def read_events(
    root: Path, world_rank: int = 0, kind: str = "optimizer_step"
) -> list[dict[str, Any]]:
    path = root / "events" / f"rank-{world_rank:05d}.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in records if record["event"] == kind]


class WarmRanks:
    """Starts the `solarwm` command line in forked processes that look like those of torchrun."""

    def __init__(self, world: Path, cache: Path) -> None:
        self._world = world
        self._cache = cache
        self._parent = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "processes" / "warm_parent.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        assert self._parent.stdout is not None
        assert self._parent.stdout.readline() == "ready\n"
        self._folder = Path()
        self._root = Path()

    def settings(self, root: Path, world_size: int, sets: tuple[str, ...]) -> list[str]:
        """The command line of a small training run: 33 frames of 64x96, global batch 4."""
        values = [
            f"data.index_root={self._world}",
            f"data.transport.root={self._world}",
            f"data.latent_cache_dir={self._cache}",
            "data.pixel_frames=33",
            f"distributed.world_size={world_size}",
            f"train.grad_accum={2 // world_size}",
            "train.warmup_steps=1",
            "train.max_steps=4",
            "runtime.save_every=2",
            f"runtime.output_dir={root}",
            *sets,
        ]
        return [
            "--config",
            str(QUICKSTART),
            *(word for value in values for word in ("--set", value)),
        ]

    def train(
        self,
        root: Path,
        *sets: str,
        world_size: int = 1,
        options: tuple[str, ...] = (),
        patch: str = "",
        wait: bool = True,
        env: dict[str, str] | None = None,
    ) -> Any:
        """Run `solarwm train`; `patch` is Python run in every rank first. Without `wait`: the
        process ids."""
        arguments = ["train", *self.settings(root, world_size, sets), *options]
        return self.launch(root, arguments, world_size=world_size, patch=patch, wait=wait, env=env)

    def launch(
        self,
        root: Path,
        arguments: list[str],
        *,
        world_size: int = 1,
        patch: str = "",
        wait: bool = True,
        env: dict[str, str] | None = None,
    ) -> Any:
        """Run any command line whose run directory is `root`."""
        self._folder = root.parent / f"{root.name}-output"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._root = root
        patch_path = None
        if patch:
            patch_path = self._folder / "patch.py"
            patch_path.write_text(patch)
        job = {
            "args": arguments,
            "world_size": world_size,
            "patch": str(patch_path) if patch_path else None,
            "folder": str(self._folder),
            "wait": wait,
            "env": env or {},
        }
        answer = self._ask(job)
        return self._ended(answer, world_size) if wait else answer["pids"]

    def join(self, world_size: int) -> Ended:
        """Wait for ranks that were started without waiting."""
        return self._ended(self._ask({"join": True}), world_size)

    def close(self) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(timeout=20)

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(job) + "\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())

    def _ended(self, answer: dict[str, Any], world_size: int) -> Ended:
        texts = [(self._folder / f"rank-{r}.txt").read_text() for r in range(world_size)]
        return Ended(codes=answer["codes"], seconds=answer["seconds"], texts=texts, root=self._root)


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight clips of the local world, 33 frames of 64x96, six of them for training."""
    from solarwm.synthetic.writer import synthesize

    folder = tmp_path_factory.mktemp("world") / "small"
    synthesize(folder, clips=8, frames=33, height=64, width=96, seed=1)
    return folder


@pytest.fixture(scope="session")
def warm(small_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmRanks]:
    """Ranks on request; encoded clips are shared between all runs of a session."""
    ranks = WarmRanks(small_world, tmp_path_factory.mktemp("latent-cache"))
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def drawn_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released file of small weights that were drawn, not trained."""
    from types import SimpleNamespace

    import torch

    from solarwm.backbones.wan22_5b.backbone import create
    from solarwm.backbones.wan22_5b.spec import SPEC

    model = SimpleNamespace(camera_translation_transform="linear", max_prior_clean_chunks=1)
    module = create(SPEC.profiles["tiny"], model).build(device="cpu", seed=1)
    path = tmp_path_factory.mktemp("weights") / "model.pt"
    torch.save({"generator": module.state_dict()}, path)
    return path
