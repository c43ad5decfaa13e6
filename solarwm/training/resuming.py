"""Where a run starts from: nothing, or a checkpoint; decided from files alone, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solarwm.checkpoints.directory import Listing, scan
from solarwm.checkpoints.directory import find as find_checkpoint
from solarwm.checkpoints.manifest import read_manifest, read_proven
from solarwm.config.difference import ABSENT, BOUND, SCHEDULE_END, compare
from solarwm.errors.types import SolarError
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import read_run_id

ELASTIC = "--set data.order=indexed in a new run: its order lets ranks and workers change on resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The start of a run."""

    checkpoint: Path | None
    """The checkpoint to take up, or None for a new run."""
    step: int
    """Its step, or 0."""
    in_place: bool
    """Whether the run goes on in a directory that holds it already."""
    notes: tuple[str, ...] = ()
    """What the operator should know: checkpoints that cannot be used, a moved end of training."""


def find(resolved: Any, layout: RunLayout, *, resume: str | None, allow_fresh: bool) -> Source:
    """What `--resume` and the config's full-resume fields mean.

    Raises `run.nothing-to-resume` (exit 3) when no complete checkpoint is there and `allow_fresh`
    is not given, `train.resume-mismatch` (exit 3) when it was made with another recipe,
    `train.later-checkpoints` (exit 2) when it is an earlier one of the run in this directory, and
    `cli.usage` (exit 2) when the command line and the config name different ones.
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
    passed_over = [f"{item.path.name}: {item.fault.headline}" for item in listing.partial]
    notes = [f"passed over {text}" for text in passed_over]
    if path is None:
        if allow_fresh:
            return Source(checkpoint=None, step=0, in_place=True, notes=tuple(notes))
        raise SolarError(
            "run.nothing-to-resume",
            "there is no complete checkpoint to resume",
            where=str(place),
            why="; ".join(passed_over),
            fixes=["--allow-fresh", "--resume PATH_OF_A_CHECKPOINT"],
        )
    manifest = read_manifest(path)
    step = manifest.step
    in_place = path.resolve().parent == root.resolve()
    if in_place and resume != "latest":
        _refuse_later(listing, path, step)
    saved = read_proven(path, manifest)["facts"]["config"]
    notes += _require_recipe(path, saved, resolved.canonical)
    return Source(checkpoint=path, step=step, in_place=in_place, notes=tuple(notes))


def mismatch(path: Path, why: str, fields: list[str], *, fixes: Sequence[str] = ()) -> SolarError:
    """The error of a checkpoint that was made otherwise than this run would go on."""
    return SolarError(
        "train.resume-mismatch",
        "the checkpoint does not fit this run",
        where=str(path),
        why=why,
        fixes=[
            *fixes,
            "resume with the config the checkpoint was made with (its resolved-config.json)",
        ],
        context={"fields": fields},
    )


def _require_recipe(path: Path, saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Refuse another recipe, by the rule of `config diff`; gives a note when the end is moved."""
    differences = compare(saved, now) if saved else []
    lines = {d.key: f"{d.key}: saved {d.before!r}, now {d.after!r}" for d in differences}
    changed = [d.key for d in differences if d.breaks_resume]
    if changed:
        saved_values = {d.key: d.before for d in differences if d.before != ABSENT}
        sets = [f"--set {key}={_word(saved_values[key])}" for key in changed if key in saved_values]
        why = "; ".join(lines[key] for key in changed)
        fixes = [" ".join(sets)] if sets else []
        if any(d.reason == BOUND for d in differences):
            fixes.append(ELASTIC)
        raise mismatch(path, why, changed, fixes=fixes)
    if SCHEDULE_END not in lines:
        return []
    return [f"{lines[SCHEDULE_END]}; the learning rate follows the new end from here"]


def _word(value: Any) -> str:
    """A value as `--set` reads it."""
    return value if isinstance(value, str) else json.dumps(value)


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
