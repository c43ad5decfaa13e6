"""Shards of safetensors into one file, against reading and writing the same bytes plainly.

A fresh process each; its peak memory is printed. `GIB` in the environment sets the size (default 2, quick 0.5).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.ratio import Ratio, measure
from solarwm.workshop.merge import in_memory
from solarwm.workshop.writing import write

TENSOR = 1 << 25
"""Bytes of a tensor."""
_OURS = (
    "import re, sys; from pathlib import Path; from solarwm.cli.app import run;"
    "code = run(['checkpoint', 'convert', sys.argv[1], sys.argv[2], '--overwrite', '--json']);"
    "print(re.search(r'VmHWM:\\s*([0-9]+)', Path('/proc/self/status').read_text())[1], file=sys.stderr);"
    "sys.exit(code)"
)
_PLAIN = (
    "import os, sys, pathlib; out = open(sys.argv[2], 'wb')\n"
    "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.safetensors')):\n"
    "    with open(path, 'rb') as file:\n"
    "        while part := file.read(1 << 26): out.write(part)\n"
    "out.flush(); os.fsync(out.fileno())"
)


def rows(*, rounds: int, quick: bool = False) -> list[Ratio]:
    """One row; the conversion syncs its file, so does the plain copy."""
    gib = float(os.environ.get("GIB", "0.5" if quick else "2"))
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        root = Path(folder)
        source = root / "source"
        count = int(gib * (1 << 30) / TENSOR)
        block = torch.randn(TENSOR // 4)
        tensors = in_memory("made", {f"blocks.{number}.weight": block for number in range(count)})
        write(tensors, source, format="sharded", shard_bytes=1 << 30)
        peaks: list[int] = []

        def ours() -> None:
            done = _run(_OURS, source, root / "ours.safetensors")
            peaks.append(int(done.split()[-1]))

        def plain() -> None:
            _run(_PLAIN, source, root / "plain.bin")

        found = measure(
            f"{gib:g} GiB of shards into one safetensors file",
            ours,
            plain,
            anchor_name="read and write plainly",
            target=1.3,
            rounds=min(rounds, 3),
        )
        shutil.rmtree(source)
    print(f"peak memory of the conversion: {max(peaks) >> 10} MiB")
    return [found]


def _run(code: str, source: Path, target: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(source), str(target)],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        raise RuntimeError(json.dumps(done.stderr[-500:]))
    return done.stderr
