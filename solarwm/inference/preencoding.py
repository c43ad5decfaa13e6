"""`solarwm preencode`: raw clips to a published latent data set. Collective over all ranks.

Every rank takes the rows `ordinal mod world_size`. A clip that cannot be encoded is recorded and the
others go on. A run that was killed goes on with the same command and ends with the same tree.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.config.resolve import require_no_placeholders
from solarwm.data.cameras import CameraRules
from solarwm.data.digest import inspect_index
from solarwm.data.index import read_index
from solarwm.data.latent_store import (
    LatentStore,
)
from solarwm.data.record_contracts import contract_of
from solarwm.data.transport.choice import open_reader
from solarwm.distributed.environment import Launcher, check_launcher, read_launcher
from solarwm.errors.types import FaultList, SolarError
from solarwm.inference.latent_publication import (
    Prepared,
    publish_indexes,
    publish_records,
    require_ours,
)
from solarwm.inference.record_making import MAKERS, RecordMaker, row_faults
from solarwm.runs import assets
from solarwm.runs.admission import holds_run, refuse_foreign
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import write_launch
from solarwm.runs.session import RunSession, run_directory

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.distributed.group import RankGroup

TELL_S = 0.5
_SHOWN = 20


def preencode(
    resolved: ResolvedRun,
    *,
    environ: Mapping[str, str] = os.environ,
    working_directory: Path | None = None,
) -> int:
    """Encode every row of the index and publish the data set; gives 0. Collective over all ranks.

    Raises SolarError: what can be known from files before anything is written; then
    `preencode.incomplete` (exit 4) when the set was published without some samples.
    """
    require_no_placeholders(resolved)
    launcher = read_launcher(environ, process_id=os.getpid())
    check_launcher(launcher, resolved.topology, command="preencode")
    output = run_directory(resolved.config.runtime.output_dir, working_directory or Path.cwd())
    layout = RunLayout(output)
    resuming = _is_ours(layout)
    if launcher.world_rank == 0:
        refuse_foreign(output, resuming=resuming, resume_with="")
    prepared = _prepare(resolved)
    session = RunSession(
        layout,
        launcher,
        command="preencode",
        opening=lambda at, token: _write_launch_files(at, resolved, token),
        resuming=resuming,
        view=_show,
    )
    with session:
        _encode_all(session, launcher, prepared)
    return 0


def _show(event: Mapping[str, Any]) -> None:
    """Tell a person on standard error how this rank gets on."""
    kind = event.get("event")
    if kind == "encode_progress":
        text = f"encoded {event['done']}/{event['total']} clips of this rank"
    elif kind == "preencode_error":
        text = f"failed: {event['message']}"
    elif kind == "note":
        text = str(event.get("text", ""))
    else:
        return
    print(text, file=sys.stderr, flush=True)


def check_files(resolved: ResolvedRun, output: Path) -> None:
    """Refuse what a start would refuse before it writes. For rank 0."""
    refuse_foreign(output, resuming=_is_ours(RunLayout(output)), resume_with="")
    _prepare(resolved)


def _prepare(resolved: ResolvedRun) -> Prepared:
    """Index read and every row found fit to be encoded. Reads only."""
    config: Any = resolved.config
    family = resolved.route.family
    if family not in MAKERS:
        raise SolarError(
            "cli.not-available",
            f"solarwm preencode does not encode {resolved.route.spec.title} yet",
            why="the record format of the family is read, its codec is not built",
            context={"route": resolved.route.key},
        )
    data, section = config.data, config.preencode
    if data.transport.kind != "local":
        raise SolarError(
            "cli.not-available",
            "preencoding reads raw shards from a local directory",
            where="data.transport.kind",
            fixes=["--set data.transport.kind=local --set data.transport.root=/a/local/copy"],
        )
    assets.require(resolved)
    path = Path(data.index_root or data.transport.root) / data.index
    index = read_index(path)
    faults = [
        SolarError(
            "index.bad-field",
            f"a row cannot be encoded: {row.sample_id}",
            where=f"{path}: row {row.ordinal + 1}",
            why="; ".join(found),
            context={"sample_id": row.sample_id, "row": row.ordinal + 1},
        )
        for row in index.rows
        if (found := row_faults(row, data.pixel_frames))
    ]
    if faults:
        headline = f"{len(faults)} of {len(index.rows)} rows cannot be encoded"
        raise FaultList(faults[:_SHOWN], headline=headline)
    contract = contract_of(
        family,
        resolved.route.spec.profiles[config.model.profile],
        pixel_frames=data.pixel_frames,
        height=data.height,
        width=data.width,
        dtype=section.dtype,
    )
    from solarwm.data.latent_records import camera_rows

    return Prepared(
        resolved=resolved,
        index=index,
        contract=contract,
        index_digest=inspect_index(path).ordered_row_digest,
        rules=CameraRules(
            array_key=data.camera_array_key,
            max_rel_translation=data.max_rel_translation,
            max_camera_abs=data.max_camera_abs,
            latent_rows=camera_rows(family, contract.latent_frames),
        ),
    )


def _encode_all(session: RunSession, launcher: Launcher, prepared: Prepared) -> None:
    from solarwm.config.route import load
    from solarwm.distributed.collectives import collective_guard
    from solarwm.distributed.devices import pick_device
    from solarwm.distributed.flight import FlightLog
    from solarwm.distributed.group import open_group

    config: Any = prepared.resolved.config
    if config.runtime.threads_per_rank:
        import torch

        torch.set_num_threads(config.runtime.threads_per_rank)
    device = pick_device(config.runtime.device, local_rank=launcher.local_rank)
    with (
        collective_guard("preencoding"),
        open_group(launcher, device=device, sp_size=1, timeout_s=7200.0) as group,
    ):
        session.watch_collectives(FlightLog(group))
        spec = prepared.resolved.route.spec
        backbone = load(spec.heavy)(spec.profiles[config.model.profile], config.model)
        base = config.model.base_path
        codec = backbone.codec(
            base_path=Path(base) if base else None, assets=config.model.assets, device=device
        )
        maker = RecordMaker(
            family=prepared.resolved.route.family,
            contract=prepared.contract,
            codec=codec,
            dtype=prepared.section.dtype,
            schema=prepared.section.schema_id,
            fps=config.data.fps,
            rules=prepared.rules,
        )
        fingerprint = prepared.fingerprint(codec.digest)
        store = LatentStore(Path(prepared.section.output_root))
        if not _is_published(session, group, store, fingerprint):
            failures = _run_share(session, group, store, maker, prepared)
            with session.phase("publish"):
                publish_records(session, group, store, prepared, failures, fingerprint)
        with session.phase("logical"):
            publish_indexes(session, group, store, prepared, fingerprint)
        session.enter("end")


def _is_published(
    session: RunSession, group: RankGroup, store: LatentStore, fingerprint: Mapping[str, Any]
) -> bool:
    """Whether the shards are all out already; else the work directory is open."""
    from solarwm.distributed.collectives import share_outcome

    fault: SolarError | None = None
    published = False
    if session.is_main:
        try:
            if store.target.exists():
                require_ours(store.target, fingerprint)
                published = True
            else:
                store.begin(fingerprint)
        except SolarError as error:
            fault = error
    share_outcome(group.collectives, fault, label="preencode begun")
    return any(group.collectives.gather_objects(published, label="preencode state"))


def _run_share(
    session: RunSession,
    group: RankGroup,
    store: LatentStore,
    maker: RecordMaker,
    prepared: Prepared,
) -> list[dict[str, Any]]:
    """Encode what is missing of this rank's rows; gives a record of each that could not be."""
    from solarwm.distributed.collectives import share_outcome

    data: Any = prepared.resolved.config.data
    session.enter("encode")
    fault: SolarError | None = None
    failures: list[dict[str, Any]] = []
    stopped = 0
    try:
        with open_reader(data) as reader:
            mine = prepared.index.rows[group.world_rank :: group.world_size]
            missing = [row for row in mine if not store.has(row.sample_id)]
            session.emit("preencode_start", rows=len(mine), missing=len(missing))
            told_at = time.monotonic()
            for done, row in enumerate(missing):
                stopped = session.stop_requested or 0
                if stopped:
                    session.at_boundary()
                    break
                if time.monotonic() - told_at > TELL_S:
                    told_at = time.monotonic()
                    session.emit("encode_progress", done=done, total=len(missing))
                try:
                    store.put(maker.make(reader, row))
                except SolarError as error:
                    if error.exit_code != 3:
                        raise
                    failures.append(
                        {
                            "sample_id": row.sample_id,
                            "row": row.ordinal + 1,
                            "code": error.code,
                            "message": error.headline,
                            "why": error.why,
                        }
                    )
                    session.emit(
                        "preencode_error",
                        sample_id=row.sample_id,
                        code=error.code,
                        message=str(error),
                    )
            else:
                session.emit("encode_progress", done=len(missing), total=len(missing))
    except SolarError as error:
        fault = error
    share_outcome(group.collectives, fault, label="records made")
    signals = group.collectives.gather_objects(stopped, label="preencode stop")
    session.raise_if_stopped(max(signals) or None)
    return failures


def _is_ours(layout: RunLayout) -> bool:
    """Whether the run directory was opened by an earlier start of a preencode run."""
    if holds_run(Path(layout.root)) is None:
        return False
    try:
        return json.loads(layout.launch_manifest.read_bytes()).get("action") == "preencode"
    except (OSError, ValueError):
        return False


def _write_launch_files(layout: RunLayout, resolved: ResolvedRun, token: str) -> None:
    write_launch(layout, resolved, launch={"token": token})
