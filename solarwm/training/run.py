"""`solarwm train`: everything that can be refused without writing, then the run itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from solarwm.config.resolve import ResolvedRun, require_no_placeholders
from solarwm.distributed.environment import check_launcher, read_launcher
from solarwm.errors.types import SolarError
from solarwm.runs import admission, assets
from solarwm.runs.layout import RunLayout
from solarwm.runs.session import RunSession, run_directory
from solarwm.training import opening, resuming
from solarwm.training.dataset import TrainingData, open_training_data, require_one_batch
from solarwm.training.initial_weights import start_weights


class RunView(Protocol):
    """What may look at a run on rank 0: told the facts at the start, every event, and the end."""

    def start(self, facts: Mapping[str, Any]) -> None: ...

    def event(self, record: Mapping[str, Any]) -> None: ...

    def close(self, outcome: str) -> None: ...


class _NoView:
    def start(self, facts: Mapping[str, Any]) -> None: ...

    def event(self, record: Mapping[str, Any]) -> None: ...

    def close(self, outcome: str) -> None: ...


def train(
    resolved: ResolvedRun,
    *,
    resume: str | None = None,
    allow_fresh: bool = False,
    stop_after: int | None = None,
    view: RunView | None = None,
    environ: Mapping[str, str] = os.environ,
    working_directory: Path | None = None,
) -> int:
    """Train, or go on training; gives 0 when done. Collective over all ranks of the launch.

    `resume` is `latest` or a path of a checkpoint or run; `allow_fresh` starts from the beginning
    when there is none. `stop_after` ends the run after that step, counted from the start of
    training, with a checkpoint. What can be checked without writing is checked first. Raises
    `SolarError`; whatever happens once the run directory is open stands in its `run-result.json`.
    """
    opening.require_route(resolved)
    require_no_placeholders(resolved)
    launcher = read_launcher(environ, process_id=os.getpid())
    check_launcher(launcher, resolved.topology)
    check_config(resolved)
    root = run_directory(resolved.config.runtime.output_dir, working_directory or Path.cwd())
    layout = RunLayout(root)
    is_main = launcher.world_rank == 0
    shown = view if view is not None and is_main else _NoView()
    source = resuming.find(resolved, layout, resume=resume, allow_fresh=allow_fresh)
    last_step = resuming.last_step(resolved, stop_after)
    if source.checkpoint is not None and source.step >= last_step:
        text = f"already at step {source.step}, to be trained to {last_step}: nothing to do"
        shown.event({"event": "note", "text": text})
        shown.close("complete")
        return 0
    data: TrainingData | None = None
    if is_main:
        data = check_files(resolved, root, source, num_nodes=launcher.num_nodes)
    session = RunSession(
        layout,
        launcher,
        command="train",
        opening=lambda at, token: opening.write_launch_files(
            at, resolved, token=token, source=source
        ),
        resuming=source.in_place,
        view=shown.event,
    )
    outcome = "failed"
    try:
        with session:
            from solarwm.training.engine import train_rank

            size = launcher.world_size
            shown.start(
                opening.facts(resolved, layout, world_size=size, source=source, last_step=last_step)
            )
            train_rank(session, resolved, launcher, source, last_step=last_step, data=data)
            whole = last_step >= resolved.config.train.max_steps
            outcome = "complete" if whole else f"stopped after step {last_step}, as asked"
    except SolarError as error:
        outcome = "interrupted" if error.exit_code in (130, 143) else "failed"
        raise
    finally:
        shown.close(outcome)
    return 0


def check_config(resolved: ResolvedRun) -> None:
    """Refuse what this release or this machine cannot train. Reads no file."""
    opening.require_route(resolved)
    opening.require_packages()


def check_files(
    resolved: ResolvedRun, root: Path, source: resuming.Source, *, num_nodes: int = 1
) -> TrainingData:
    """The training data, when the directory is free, assets and start weights are there and every
    clip can be cut.

    For rank 0. Writes nothing.
    """
    assets.require(resolved)
    admission.refuse_foreign(root, resuming=source.in_place)
    if source.checkpoint is None:
        start_weights(resolved)
    data = open_training_data(resolved.config, num_nodes=num_nodes)
    require_one_batch(data, resolved.config.train.global_batch_size)
    return data
