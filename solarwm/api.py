"""Typed Python doors to what the commands do. Each imports its room when called, so importing this module is cheap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.inference.own_clip import OwnRequest
    from solarwm.synthetic.writer import SynthesisReport


def resolve(
    config: Path | str, overrides: Sequence[str] = (), *, action: str | None = None
) -> ResolvedRun:
    """The typed, digest-stamped run of a config file with `key=value` overrides.

    `action` is the command that will use it, where one will. Raises SolarError (exit 2), all faults at once.
    """
    from solarwm.config.resolve import resolve as resolve_config

    return resolve_config(Path(config), overrides, action=action)


def train(
    resolved: ResolvedRun,
    *,
    resume: str | None = None,
    allow_fresh: bool = False,
    stop_after: int | None = None,
) -> int:
    """Train in this process, one rank of the run; gives the exit code that `run-result.json` holds.

    `resume` is `latest` or a checkpoint directory; `allow_fresh` lets `latest` start anew when there is none;
    `stop_after` saves and stops after that step, counted from the start of training.
    """
    from solarwm.training.run import train as run_training

    return run_training(resolved, resume=resume, allow_fresh=allow_fresh, stop_after=stop_after)


def infer(
    resolved: ResolvedRun,
    *,
    resume: bool = False,
    first_row: bool = False,
    own: OwnRequest | None = None,
) -> int:
    """Generate every pass of the config; gives the exit code (4 when some slots failed).

    `first_row` takes row 0 of the train index, `own` a picture and camera, instead of held-out clips.
    """
    from solarwm.inference.run import infer as run_inference

    return run_inference(resolved, resume=resume, first_row=first_row, own=own)


def validation_plan(resolved: ResolvedRun) -> dict[str, Any]:
    """The plan a run of this config freezes at its first validation, with `state`: `not frozen` or
    `frozen` in its output directory. Writes nothing.

    Raises `validation.plan-differs` (exit 3) where the directory has frozen another one.
    """
    from solarwm.inference.frozen_plan import planned

    return planned(resolved, working_directory=Path.cwd())


def preencode(resolved: ResolvedRun) -> int:
    """Encode the raw clips of a config into a published latent data set; gives the exit code 0.

    Raises `preencode.incomplete` (exit 4) when some clips could not be encoded. Collective over all ranks.
    """
    from solarwm.inference.preencoding import preencode as run_preencoding

    return run_preencoding(resolved)


def synthesize(
    out: Path | str,
    *,
    clips: int,
    frames: int,
    height: int,
    width: int,
    seed: int,
    fps: float = 16.0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> SynthesisReport:
    """Render a local world into `out`: raw-WDS shards and train/test indexes in the published format."""
    from solarwm.synthetic.writer import synthesize as render_world

    return render_world(
        Path(out),
        clips=clips,
        frames=frames,
        height=height,
        width=width,
        seed=seed,
        fps=fps,
        workers=workers,
        progress=progress,
    )
