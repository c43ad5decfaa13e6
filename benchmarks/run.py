"""`make bench`: every side-by-side ratio in one table; `--quick` takes three rounds."""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    checkpoint,
    command_line,
    conversion,
    data_index,
    data_loader,
    data_neighbours,
    data_reads,
    forcing,
    generation,
    objectives,
    rollout,
    sequence_parallel,
    step,
    walk,
)
from benchmarks.ratio import record, table


def main() -> None:
    """Measure, print the table, keep the raw rounds under reports/bench/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds, small sizes first")
    parser.add_argument(
        "--only",
        choices=[
            "command-line",
            "step",
            "forcing",
            "objectives",
            "rollout",
            "generation",
            "walk",
            "sequence-parallel",
            "checkpoint",
            "conversion",
            "data-reads",
            "data-index",
            "data-loader",
            "data-neighbours",
        ],
        help="one part",
    )
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    rows = []
    if options.only in (None, "command-line"):
        rows += command_line.rows(rounds=rounds)
    if options.only in (None, "step"):
        rows += step.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "forcing"):
        rows += forcing.rows(rounds=rounds)
    if options.only in (None, "objectives"):
        rows += objectives.rows(rounds=rounds)
    if options.only in (None, "rollout"):
        rows += rollout.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "generation"):
        rows += generation.rows(rounds=rounds)
    if options.only in (None, "walk"):
        rows += walk.rows(rounds=rounds)
    if options.only in (None, "sequence-parallel"):
        rows += sequence_parallel.rows(rounds=rounds)
    if options.only in (None, "checkpoint"):
        rows += checkpoint.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "conversion"):
        rows += conversion.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "data-reads"):
        rows += data_reads.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "data-index"):
        rows += data_index.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "data-loader"):
        rows += data_loader.rows(rounds=rounds, quick=options.quick)
    if options.only in (None, "data-neighbours"):
        rows += data_neighbours.rows(rounds=rounds, quick=options.quick)
    print(table(rows))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    target = Path("reports/bench") / f"{date.today().isoformat()}.json"
    record(target, rows, commit=commit, quick=options.quick)
    print(f"raw rounds: {target}")


if __name__ == "__main__":
    main()
