"""`solarwm infer`: from a resolved config to a published generation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.config.resolve import require_no_placeholders
from solarwm.data.index import Index, read_index
from solarwm.errors.types import SolarError
from solarwm.inference import plan as plans_of
from solarwm.inference.progress import GenerationProgress
from solarwm.inference.weights import WeightSource, check_fit, find_weights, load_modules
from solarwm.runs.admission import holds_run
from solarwm.runs.layout import RunLayout
from solarwm.runs.session import RunSession, run_directory
from solarwm.storage import digests, durable

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.distributed.group import RankGroup
    from solarwm.inference.cases import Case
    from solarwm.inference.clips import HeldOutClips
    from solarwm.inference.generate import PassPlan
    from solarwm.inference.passes import Generator
    from solarwm.inference.transaction import GenerationStore

QUALITY_SCHEMA = "solarwm.inference-quality.v1"


def infer(
    resolved: ResolvedRun,
    *,
    resume: bool = False,
    first_row: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Generate every pass of every case; gives the exit code 0. Collective over all ranks.

    Everything that can be known from files is checked before the run directory is touched. A clip
    that cannot be made leaves an error record and the others go on; the run then ends with
    `inference.incomplete` (exit 4). `resume` fills what is missing in the same directory,
    `first_row` makes slot 0 only.
    """
    from solarwm.distributed.environment import check_launcher, read_launcher
    from solarwm.runs.manifest import write_launch

    require_no_placeholders(resolved)
    plans_of.check_supported(resolved)
    launcher = read_launcher(environ, process_id=os.getpid())
    check_launcher(launcher, resolved.topology, command="infer")
    source = weight_source(resolved)
    numerics = check_fit(source, resolved)
    index = read_index(plans_of.test_index_path(resolved))
    layout = RunLayout(run_directory(resolved.config.runtime.output_dir, Path.cwd()))
    if resume:
        _check_resumable(layout.root)
    count = 1 if first_row else resolved.config.validation.sample_count
    passes = plans_of.pass_plans(resolved, numerics=numerics)
    own = len(range(launcher.world_rank, count, launcher.world_size))
    progress = GenerationProgress(total=own * len(passes) if launcher.world_rank == 0 else 0)
    session = RunSession(
        layout,
        launcher,
        command="infer",
        opening=lambda at, token: write_launch(
            at, resolved, launch={"token": token, "numerics": numerics}
        ),
        resuming=resume,
        view=progress.show,
    )
    try:
        with session:
            _generate(resolved, session, launcher, source, index, passes, count, resume)
    finally:
        progress.close()
    return 0


def weight_source(resolved: ResolvedRun) -> WeightSource:
    """The weights a config names. Raises `inference.weights-missing` or `checkpoint.*` (exit 3)."""
    path = resolved.config.checkpoint.path  # type: ignore[attr-defined]
    if not path:
        raise SolarError(
            "inference.weights-missing",
            "the config names no weights",
            where="checkpoint.path",
            fixes=["--set checkpoint.path=/absolute/path/of/a/training/run"],
        )
    return find_weights(Path(path), plans_of.wanted_weights(resolved))


def _generate(
    resolved: ResolvedRun,
    session: RunSession,
    launcher: Any,
    source: WeightSource,
    index: Index,
    passes: Sequence[PassPlan],
    count: int,
    resume: bool,
) -> None:
    import torch

    from solarwm.data.shards import ShardReader
    from solarwm.distributed.devices import pick_device
    from solarwm.distributed.group import open_group
    from solarwm.inference.clips import HeldOutClips
    from solarwm.inference.transaction import GenerationStore

    config: Any = resolved.config
    if config.runtime.threads_per_rank:
        torch.set_num_threads(config.runtime.threads_per_rank)
    device = pick_device(config.runtime.device, local_rank=launcher.local_rank)
    with (
        open_group(
            launcher,
            device=device,
            sp_size=config.distributed.sequence_parallel_size,
            timeout_s=config.distributed.timeout_s,
        ) as group,
        ShardReader(Path(config.data.transport.root)) as reader,
    ):
        session.watch_collectives(lambda: group.collectives.last)
        clips = HeldOutClips(
            index=index,
            reader=reader,
            cut=plans_of.clip_cut(resolved),
            rules=plans_of.camera_rules(resolved),
        )
        with session.phase("select"):
            cases = clips.select(
                count,
                selection_seed=config.validation.selection_seed,
                base_noise_seed=config.validation.noise_seed,
            )
        store = GenerationStore(session.layout.root / "generation", family=resolved.route.family)
        if session.is_main:
            store.begin(_plan(resolved, source, passes, cases), resume=resume)
        group.collectives.barrier(label="generation begun")
        with session.phase("weights"):
            generator = _generator(resolved, session, group, source, passes, clips, store)
        with session.phase("generate"):
            _run_share(session, group, generator, passes, cases)
        with session.phase("commit"):
            _commit(resolved, session, group, generator, passes, cases)


def _generator(
    resolved: ResolvedRun,
    session: RunSession,
    group: RankGroup,
    source: WeightSource,
    passes: Sequence[PassPlan],
    clips: HeldOutClips,
    store: GenerationStore,
) -> Generator:
    from solarwm.config.route import load
    from solarwm.inference.passes import Generator

    config: Any = resolved.config
    spec = resolved.route.spec
    profile = spec.profiles[config.model.profile]
    backbone = load(spec.heavy)(profile, config.model)
    wanted = tuple(dict.fromkeys(plan.weights for plan in passes))
    base_path = getattr(config.model, "base_path", None)
    return Generator(
        backbone=backbone,
        modules=load_modules(source, wanted, backbone=backbone, device=group.device),
        weights_ids={weights: source.weights_id(weights) for weights in wanted},
        codec=backbone.codec(
            base_path=Path(base_path) if base_path else None,
            assets=getattr(config.model, "assets", None),
            device=group.device,
        ),
        clips=clips,
        store=store,
        device=group.device,
        fps=config.data.fps,
        world_rank=session.launch.world_rank,
        facts={
            "resolved_config_digest": resolved.resolved_digest,
            "route": resolved.route.key,
            "numerics": passes[0].numerics,
            "weights_path": str(source.path),
            "weights_step": source.step,
        },
    )


def _run_share(
    session: RunSession,
    group: RankGroup,
    generator: Generator,
    passes: Sequence[PassPlan],
    cases: Sequence[Case],
) -> None:
    """This rank's cases: encode them, share the mean latent, generate what is missing."""
    from solarwm.inference.cases import owned
    from solarwm.inference.passes import encode_cases, mean_latent, missing_slots, run_case

    place, store = group.place, generator.store
    own = owned(cases, place.dp_rank, place.dp_world) if place.sp_rank == 0 else ()
    missing = missing_slots(store, passes, own)

    def told(plan_name: str, case: Case, fault: BaseException) -> None:
        store.fail(plan_name, case, fault, world_rank=generator.world_rank)
        session.emit(
            "inference_error",
            **{"pass": plan_name},
            slot=case.slot,
            sample_id=case.sample_id,
            code=getattr(fault, "code", ""),
            message=str(fault),
        )

    def unreadable(case: Case, fault: BaseException) -> None:
        for plan in missing.get(case.slot, ()):
            told(plan.name, case, fault)

    encoded = encode_cases(generator, own, unreadable)
    mean = mean_latent(generator, encoded, group.collectives)
    for case in own:
        if case.slot not in missing or case.slot not in encoded:
            continue
        if session.stop_requested:
            session.at_boundary()
            session.raise_if_stopped()
        started = time.perf_counter()

        def on_clip(plan: PassPlan, metrics: Mapping[str, Any], case: Case = case) -> None:
            nonlocal started
            now = time.perf_counter()
            session.emit(
                "inference_sample",
                **{"pass": plan.name},
                slot=case.slot,
                sample_id=case.sample_id,
                psnr_truth=metrics.get("psnr_truth"),
                duration_s=now - started,
            )
            started = now

        run_case(
            generator,
            encoded[case.slot],
            missing[case.slot],
            mean_latent_NYX3=mean,
            on_fault=lambda plan, fault, case=case: told(plan.name, case, fault),
            on_clip=on_clip,
        )


def _commit(
    resolved: ResolvedRun,
    session: RunSession,
    group: RankGroup,
    generator: Generator,
    passes: Sequence[PassPlan],
    cases: Sequence[Case],
) -> None:
    """Markers and the quality summary on rank 0; every rank learns whether slots are missing."""
    from solarwm.inference.passes import missing_slots

    store = generator.store
    group.collectives.barrier(label="clips published")
    lacking = missing_slots(store, passes, cases)
    if session.is_main:
        _write_quality(store, passes)
        entries = [
            store.commit_pass(plan.name, cases, weights_id=generator.weights_ids[plan.weights])
            for plan in passes
            if not any(plan in missing for missing in lacking.values())
        ]
        validation: Any = resolved.config.validation
        if not lacking:
            store.commit(
                entries,
                test_index=str(plans_of.test_index_path(resolved)),
                selection_seed=validation.selection_seed,
                noise_seed=validation.noise_seed,
                cases=len(cases),
            )
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


def _write_quality(store: GenerationStore, passes: Sequence[PassPlan]) -> None:
    from solarwm.inference.quality import summarise

    metrics = {
        plan.name: [manifest["metrics"] for manifest in store.manifests(plan.name)]
        for plan in passes
    }
    table = {"schema": QUALITY_SCHEMA, **summarise(metrics)}
    durable.write_bytes_atomic(store.root / "quality.json", digests.human_json(table))


def _plan(
    resolved: ResolvedRun,
    source: WeightSource,
    passes: Sequence[PassPlan],
    cases: Sequence[Case],
) -> dict[str, Any]:
    validation: Any = resolved.config.validation
    return {
        "route": resolved.route.key,
        "selection_seed": validation.selection_seed,
        "noise_seed": validation.noise_seed,
        "weights": source.identity,
        "cases": [case.manifest() for case in cases],
        "passes": [
            {
                "name": plan.name,
                "weights": plan.weights,
                "solver": plan.solver,
                "num_inference_steps": plan.num_inference_steps,
                "camera": plan.camera,
                "latents": plan.latents,
                "shift": plan.shift,
                "numerics": plan.numerics,
            }
            for plan in passes
        ],
    }


def _check_resumable(root: Path) -> None:
    """Refuse (exit 2) to resume a directory that holds another kind of run."""
    if holds_run(root) is None:
        return
    try:
        action = json.loads((root / "launch-manifest.json").read_bytes()).get("action")
    except (OSError, ValueError):
        action = None
    if action not in ("infer", None):
        raise SolarError(
            "run.directory-taken",
            f"the output directory holds a run of `solarwm {action}`",
            where=str(root),
            fixes=["--set runtime.output_dir=NEW_DIR"],
        )
