"""Where a run starts from: nothing, or a checkpoint; decided from files alone, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solarwm.checkpoints.directory import Listing, scan
from solarwm.checkpoints.directory import find as find_checkpoint
from solarwm.checkpoints.manifest import read_manifest
from solarwm.errors.types import SolarError
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import read_run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The start of a run."""

    checkpoint: Path | None
    """The checkpoint to take up, or None for a new run."""
    step: int
    """Its step, or 0."""
    in_place: bool
    """Whether the run goes on in a directory that holds it already."""
    passed_over: tuple[str, ...] = ()
    """Checkpoints of the run that cannot be used, each with the reason."""


def find(resolved: Any, layout: RunLayout, *, resume: str | None, allow_fresh: bool) -> Source:
    """What `--resume` and the config's full-resume fields mean.

    Raises `run.nothing-to-resume` (exit 3) when no complete checkpoint is there and `allow_fresh`
    is not given, and `cli.usage` (exit 2) when the command line and the config name different ones.
    """
    root = Path(layout.root)
    section = resolved.config.checkpoint
    named = (
        getattr(section, "path", None) if getattr(section, "mode", "") == "full_resume" else None
    )
    if resume is None:
        if named is None:
            return Source(checkpoint=None, step=0, in_place=False)
        resume = str(named)
    elif (
        named is not None and resume != "latest" and Path(resume).resolve() != Path(named).resolve()
    ):
        raise SolarError(
            "cli.usage",
            "the command line and the config name different checkpoints to resume",
            where="--resume",
            why=f"--resume {resume}; checkpoint.path: {named}",
            fixes=[f"--resume {named}"],
        )
    place = root if resume == "latest" else Path(resume).expanduser().resolve()
    listing = scan(root, run_id=read_run_id(root))
    if resume == "latest":
        path = listing.newest.path if listing.newest else None
    else:
        path = find_checkpoint(place) if place.exists() else None
    passed_over = tuple(f"{item.path.name}: {item.fault.headline}" for item in listing.partial)
    if path is None:
        if allow_fresh:
            return Source(checkpoint=None, step=0, in_place=True, passed_over=passed_over)
        raise SolarError(
            "run.nothing-to-resume",
            "there is no complete checkpoint to resume",
            where=str(place),
            why="; ".join(passed_over),
            fixes=["--allow-fresh", "--resume PATH_OF_A_CHECKPOINT"],
        )
    step = read_manifest(path).step
    in_place = path.resolve().parent == root.resolve()
    if in_place and resume != "latest":
        _refuse_later(listing, path, step)
    return Source(checkpoint=path, step=step, in_place=in_place, passed_over=passed_over)


def _refuse_later(listing: Listing, path: Path, step: int) -> None:
    """A directory holds one course of training: going back in it would meet what it saved already."""
    later = [entry.path.name for entry in listing.complete if entry.step > step]
    if not later:
        return
    raise SolarError(
        "train.later-checkpoints",
        f"the run has checkpoints after step {step}: {', '.join(later)}",
        where=str(path),
        why="training from here again would write the same steps a second time",
        fixes=[
            "--set runtime.output_dir=NEW_DIRECTORY to branch off there from this checkpoint",
            "--resume latest to go on from the newest one",
            f"move {later[0]} and later ones out of the run directory",
        ],
        context={"later": later},
    )


def last_step(resolved: Any, stop_after: int | None) -> int:
    """The step this start ends at: `max_steps`, its override, or `stop_after`, whichever comes
    first."""
    config = resolved.config
    limits = [
        config.train.max_steps,
        getattr(config.runtime, "max_steps_override", None),
        stop_after,
    ]
    return min(limit for limit in limits if limit is not None)
