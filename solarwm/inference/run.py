"""`solarwm infer`: from a resolved config to a published generation."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.config.resolve import require_no_placeholders
from solarwm.data.transport.choice import open_reader
from solarwm.distributed.environment import Launcher, check_launcher, read_launcher
from solarwm.errors.types import SolarError
from solarwm.inference import plan as plans_of
from solarwm.inference.prepared import Prepared, check_directory, prepare
from solarwm.inference.progress import GenerationProgress
from solarwm.inference.publication import generation_root, require_one_node
from solarwm.inference.transaction import GenerationStore
from solarwm.inference.weights import load_modules
from solarwm.runs.layout import RunLayout
from solarwm.runs.manifest import write_launch
from solarwm.runs.session import RunSession, run_directory
from solarwm.storage import digests, durable

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.distributed.group import RankGroup
    from solarwm.inference.cases import Case
    from solarwm.inference.own_clip import OwnRequest
    from solarwm.inference.passes import Generator
    from solarwm.inference.plan import PassPlan

QUALITY_SCHEMA = "solarwm.inference-quality.v1"


def infer(
    resolved: ResolvedRun,
    *,
    resume: bool = False,
    first_row: bool = False,
    own: OwnRequest | None = None,
    environ: Mapping[str, str] = os.environ,
    working_directory: Path | None = None,
) -> int:
    """Generate every pass of every case; gives the exit code 0. Collective over all ranks.

    Everything that can be known from files is checked before the run directory is touched. A clip
    that cannot be made leaves an error record and the others go on; the run then ends with
    `inference.incomplete` (exit 4). `resume` fills what is missing in the same directory,
    `first_row` makes row 0 of the train index, `own` a picture of the user's, instead of held-out
    clips.
    """
    require_no_placeholders(resolved, unread="data" if own is not None else None)
    plans_of.check_supported(resolved)
    launcher = read_launcher(environ, process_id=os.getpid())
    check_launcher(launcher, resolved.topology, command="infer")
    output = run_directory(resolved.config.runtime.output_dir, working_directory or Path.cwd())
    layout = RunLayout(generation_root(resolved, output, own=own is not None))
    if layout.root != output:
        require_one_node(launcher)
    progress = GenerationProgress()
    with open_reader(resolved.config.data) as reader:
        prepared = prepare(resolved, output, reader, resume=resume, first_row=first_row, own=own)
        if launcher.world_rank == 0:
            check_directory(layout, prepared)
        if resume and prepared.is_complete:
            if launcher.world_rank == 0:
                progress.show({"event": "note", "text": f"already complete: {prepared.store.root}"})
            return 0
        session = RunSession(
            layout,
            launcher,
            command="infer",
            opening=lambda at, token: _write_launch_files(at, token, prepared),
            resuming=resume,
            view=progress.show,
        )
        try:
            with session:
                _generate(session, launcher, prepared)
        finally:
            progress.close()
    if launcher.world_rank == 0:
        if prepared.publication is not None:
            prepared.publication.complete(resolved.resolved_digest)
        progress.show({"event": "note", "text": f"generation complete: {prepared.store.root}"})
    return 0


def _generate(session: RunSession, launcher: Launcher, prepared: Prepared) -> None:
    from solarwm.distributed.devices import pick_device
    from solarwm.distributed.flight import FlightLog
    from solarwm.distributed.group import open_group

    config: Any = prepared.resolved.config
    if config.runtime.threads_per_rank:
        import torch

        torch.set_num_threads(config.runtime.threads_per_rank)
    device = pick_device(config.runtime.device, local_rank=launcher.local_rank)
    with open_group(
        launcher,
        device=device,
        sp_size=config.distributed.sequence_parallel_size,
        timeout_s=config.distributed.timeout_s,
        check_order=config.distributed.check_collectives,
        check_peers_every=config.distributed.check_peers_every,
    ) as group:
        session.watch_collectives(FlightLog(group))
        if session.is_main:
            prepared.store.begin(prepared.plan(), resume=prepared.resume)
        group.collectives.barrier(label="generation begun")
        with session.phase("weights"):
            generator = _generator(session, group, prepared)
        with session.phase("generate"):
            _run_share(session, group, generator, prepared)
        with session.phase("commit"):
            _commit(session, group, generator, prepared)
        session.enter("end")


def _generator(session: RunSession, group: RankGroup, prepared: Prepared) -> Generator:
    from solarwm.config.route import load
    from solarwm.distributed.sharding import compute_dtype
    from solarwm.inference.passes import Generator

    resolved, source = prepared.resolved, prepared.source
    config: Any = resolved.config
    spec = resolved.route.spec
    model = config.model.model_copy(update={"numerics": prepared.numerics})
    backbone = load(spec.heavy)(spec.profiles[config.model.profile], model)
    backbone.sequence = group.sequence
    wanted = plans_of.wanted_weights(resolved)
    base_path = config.model.base_path
    return Generator(
        backbone=backbone,
        modules=load_modules(
            source,
            wanted,
            backbone=backbone,
            device=group.device,
            endpoint_gate=plans_of.endpoint_gate(resolved),
            sharding=config.train.fsdp,
        ),
        weights_ids={weights: source.weights_id(weights) for weights in wanted},
        codec=backbone.codec(
            base_path=Path(base_path) if base_path else None,
            assets=config.model.assets,
            device=group.device,
        ),
        clips=prepared.clips,
        store=prepared.store,
        device=group.device,
        fps=config.data.fps,
        world_rank=session.launch.world_rank,
        facts={
            "resolved_config_digest": resolved.resolved_digest,
            "route": resolved.route.key,
            "numerics": prepared.numerics,
            "weights_path": str(source.path),
            "weights_step": source.step,
            "resolved_weights_role": {name: source.weights_role(name) for name in wanted},
        },
        autocast=compute_dtype(config.train.fsdp),
        streams=plans_of.streams(prepared.passes, own=prepared.index_path is None),
        sequence=group.sequence,
    )


def _run_share(
    session: RunSession, group: RankGroup, generator: Generator, prepared: Prepared
) -> None:
    """This rank's cases: encode them, share the mean latent, generate what is missing."""
    from solarwm.inference.cases import owned
    from solarwm.inference.passes import (
        encode_cases,
        mean_latent,
        missing_slots,
        of_peers,
        run_case,
    )

    place, store, sequence = group.place, generator.store, group.sequence
    own = owned(prepared.cases, place.dp_rank, place.dp_world)
    missing = missing_slots(store, prepared.passes, own)
    missing = of_peers(sequence, missing, label="missing clips")[0]
    if generator.publishes:
        session.emit("inference_start", clips=sum(len(plans) for plans in missing.values()))

    def told(plan: PassPlan, case: Case, fault: BaseException) -> None:
        if not generator.publishes:
            return
        store.fail(plan.name, case, fault, world_rank=generator.world_rank)
        fields = {"pass": plan.name, "code": getattr(fault, "code", ""), "message": str(fault)}
        session.emit("inference_error", slot=case.slot, sample_id=case.sample_id, **fields)

    def unreadable(case: Case, fault: BaseException) -> None:
        for plan in missing.get(case.slot, ()):
            told(plan, case, fault)

    encoded = encode_cases(generator, own, unreadable)
    mean = mean_latent(generator, encoded, group.collectives)
    clock = _Clock()
    for case in own:
        if case.slot not in missing or case.slot not in encoded:
            continue
        stop = max(of_peers(sequence, session.stop_requested or 0, label="generation stop"))
        if stop:
            session.at_boundary()
            session.raise_if_stopped(stop)

        def made(plan: PassPlan, metrics: Mapping[str, Any], case: Case = case) -> None:
            if not generator.publishes:
                return
            names = ("psnr_truth", "seconds_per_chunk")
            fields = {"pass": plan.name, **{n: metrics[n] for n in names if n in metrics}}
            session.emit(
                "inference_sample",
                slot=case.slot,
                sample_id=case.sample_id,
                duration_s=clock.lap(),
                **fields,
            )

        clock.lap()
        run_case(
            generator,
            encoded[case.slot],
            missing[case.slot],
            mean_latent_NYX3=mean,
            on_fault=lambda plan, fault, case=case: told(plan, case, fault),
            on_clip=made,
        )


def _commit(
    session: RunSession, group: RankGroup, generator: Generator, prepared: Prepared
) -> None:
    """Markers and the quality summary on rank 0; every rank learns whether slots are missing."""
    from solarwm.inference.passes import missing_slots
    from solarwm.inference.sheets import write_sheet

    store, passes, cases = prepared.store, prepared.passes, prepared.cases
    group.collectives.barrier(label="clips published")
    lacking = missing_slots(store, passes, cases)
    if session.is_main:
        _write_quality(store, passes)
        entries = [
            store.commit_pass(plan.name, cases, weights_id=generator.weights_ids[plan.weights])
            for plan in passes
            if not any(plan in missing for missing in lacking.values())
        ]
        for entry in entries:
            write_sheet(store, entry["pass"])
        validation: Any = prepared.resolved.config.validation
        if not lacking:
            store.commit(
                entries,
                test_index=str(prepared.index_path or ""),
                selection_seed=validation.selection_seed,
                noise_seed=validation.noise_seed,
                cases=len(cases),
            )
            if prepared.publication is not None:
                weights_id = str(entries[0]["weights_id"])
                prepared.publication.publish(cases, store, weights_id=weights_id)
    session.note_outcome(cases=len(cases), passes=len(passes), slots_missing=sorted(lacking))
    group.collectives.barrier(label="generation committed")
    if lacking:
        number = sum(len(missing) for missing in lacking.values())
        raise SolarError(
            "inference.incomplete",
            f"{number} of {len(cases) * len(passes)} clips could not be made",
            where=str(store.root),
            why=f"slots {', '.join(map(str, sorted(lacking)))}; the reasons are in "
            f"{store.root}/<pass>/errors/",
            fixes=["mend the cause and run the same command with --resume"],
        )


class _Clock:
    """Seconds since the last lap."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        return taken


def _write_quality(store: GenerationStore, passes: Sequence[PassPlan]) -> None:
    from solarwm.inference.quality import summarise

    metrics = {
        plan.name: [manifest["metrics"] for manifest in store.manifests(plan.name)]
        for plan in passes
    }
    table = {"schema": QUALITY_SCHEMA, **summarise(metrics)}
    durable.write_bytes_atomic(store.root / "quality.json", digests.human_json(table))


def _write_launch_files(layout: RunLayout, token: str, prepared: Prepared) -> None:
    launch = {"token": token, "numerics": prepared.numerics}
    write_launch(layout, prepared.resolved, launch=launch)
