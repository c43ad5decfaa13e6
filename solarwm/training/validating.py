"""Generation of held-out clips during training, by the code that `solarwm infer` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from solarwm.backbones.seam import VideoCodec
from solarwm.checkpoints import rng
from solarwm.data.transport.choice import open_reader
from solarwm.distributed.group import RankGroup
from solarwm.distributed.sharding import compute_dtype
from solarwm.errors.types import SolarError
from solarwm.inference import frozen_plan
from solarwm.inference import plan as plans
from solarwm.inference.cases import Case, owned
from solarwm.inference.clips import open_clips
from solarwm.inference.encoding import EncodedCase
from solarwm.inference.passes import (
    Generator,
    encode_cases,
    mean_latent,
    missing_slots,
    of_peers,
    run_case,
)
from solarwm.inference.plan import PassPlan
from solarwm.inference.quality import summarise
from solarwm.inference.sheets import write_sheet
from solarwm.inference.transaction import GenerationStore
from solarwm.training.loop import Session
from solarwm.training.schedule import due
from solarwm.training.stage import Stage

REPORT_SCHEMA = "solarwm.wan22-training-validation.v1"


class TrainingValidation:
    """The held-out cases of a run, generated at the steps the config names. One output folder a
    step: `validation/step_NNNNNN`.

    What is validated is frozen at the first validation of a run directory; a run that would validate
    something else there is refused (`validation.plan-differs`, exit 3) before its first step.
    """

    def __init__(
        self,
        resolved: Any,
        stage: Stage,
        *,
        codec: VideoCodec,
        group: RankGroup,
        session: Session,
        root: Path,
        numerics: str,
    ) -> None:
        config = resolved.config
        self._resolved = resolved
        self._stage = stage
        self._codec = codec
        self._group = group
        self._session = session
        self._root = root
        self._every = config.validate_every
        self._steps = frozenset(getattr(config.runtime, "validation_steps", ()))
        self._passes = plans.pass_plans(resolved, numerics=numerics)
        self._clips = open_clips(
            resolved,
            open_reader(
                config.data,
                cache_dir=getattr(config.runtime, "validation_cache_dir", None),
                cache_max_gib=getattr(config.runtime, "validation_cache_max_gib", None),
            ),
        )
        self._cases = self._clips.select(
            config.validation.sample_count,
            selection_seed=config.validation.selection_seed,
            base_noise_seed=config.validation.noise_seed,
        )
        self._frozen = frozen_plan.validation_plan(resolved, self._cases, self._passes)
        frozen_plan.frozen(root, self._frozen)
        self._encoded: dict[int, EncodedCase] | None = None
        self._unreadable: list[tuple[Case, BaseException]] = []

    def is_due(self, step: int) -> bool:
        """Whether the clips are generated after completed step `step`."""
        return due(step, self._every) or step in self._steps

    def run(self, step: int) -> None:
        """Generate, measure and publish every pass, then tell a `validation` event.

        A clip that cannot be made leaves an error record and is counted; training goes on. A pass
        on an average that does not exist is reported as not started. Weights and random states are those
        of before, also when it raises. Collective over all ranks.
        """
        draws = rng.capture()
        try:
            with self._session.phase("validate"):
                report = self._generate(step)
        finally:
            rng.restore(draws, place="validation")
        self._session.emit("validation", step=step, report=report)

    def _generate(self, step: int) -> dict[str, Any]:
        role, group = self._stage.role, self._group
        started = [
            p
            for p in self._passes
            if p.weights != "ema" or (role.ema is not None and role.ema.exists)
        ]
        store = GenerationStore(
            self._root / "validation" / f"step_{step:06d}", family=self._resolved.route.family
        )
        self._require_one_plan()
        if group.world_rank == 0:
            frozen_plan.freeze(self._root, self._frozen)
            store.begin(self._plan(step, started), resume=store.root.exists())
        group.collectives.barrier(label=f"validation {step} begun")
        own = owned(self._cases, group.place.dp_rank, group.place.dp_world)
        generator = self._generator(store, step)
        if self._encoded is None:
            self._encoded = encode_cases(
                generator, own, lambda case, fault: self._unreadable.append((case, fault))
            )
        mean = mean_latent(generator, self._encoded, group.collectives)
        sequence = group.sequence
        missing = of_peers(
            sequence, missing_slots(store, started, own), label=f"validation {step} missing"
        )[0]
        for case, fault in self._unreadable:
            for plan in missing.get(case.slot, ()):
                self._failed(store, plan, case, fault)
        for weights in ("live", "ema"):
            with self._weights(weights):
                for case in own:
                    chosen = [p for p in missing.get(case.slot, ()) if p.weights == weights]
                    encoded = self._encoded.get(case.slot)
                    if not chosen or encoded is None:
                        continue
                    stop = self._session.stop_requested or 0
                    if max(of_peers(sequence, stop, label="validation stop")):
                        continue
                    run_case(
                        generator,
                        encoded,
                        chosen,
                        mean_latent_NYX3=mean,
                        on_fault=lambda plan, fault, case=case: self._failed(
                            store, plan, case, fault
                        ),
                        on_clip=lambda plan, metrics: None,
                    )
        group.collectives.barrier(label=f"validation {step} made")
        report = self._report(store, step, started) if group.world_rank == 0 else {}
        group.collectives.barrier(label=f"validation {step} committed")
        return report

    def _require_one_plan(self) -> None:
        keys = self._group.collectives.gather_objects(
            self._frozen.body["payload_digest"], label="validation plan"
        )
        odd = [rank for rank, key in enumerate(keys) if key != keys[0]]
        if odd:
            raise SolarError(
                "validation.plan-differs",
                f"rank {odd[0]} would validate other clips than rank 0",
                where=str(plans.test_index_path(self._resolved)),
                why=f"plan {keys[odd[0]][:16]} on rank {odd[0]}, {keys[0][:16]} on rank 0",
                fixes=["give every node the same test index and shards"],
            )

    def _report(
        self, store: GenerationStore, step: int, started: Sequence[PassPlan]
    ) -> dict[str, Any]:
        lacking = missing_slots(store, started, self._cases)
        entries = [
            store.commit_pass(plan.name, self._cases, weights_id=_weights_id(step, plan.weights))
            for plan in started
            if not any(plan in missing for missing in lacking.values())
        ]
        for entry in entries:
            write_sheet(store, entry["pass"])
        validation = self._resolved.config.validation
        if started and not lacking:
            store.commit(
                entries,
                test_index=self._resolved.config.data.test_index,
                selection_seed=validation.selection_seed,
                noise_seed=validation.noise_seed,
                cases=len(self._cases),
            )
        metrics = {
            plan.name: [manifest["metrics"] for manifest in store.manifests(plan.name)]
            for plan in started
        }
        absent = [plan.name for plan in self._passes if plan not in started]
        return {
            "schema": REPORT_SCHEMA,
            "stage": self._resolved.route.stage,
            "step": step,
            "cases": len(self._cases),
            "slots_missing": sorted(lacking),
            "passes_not_started": absent,
            "generation": summarise(metrics),
        }

    def _generator(self, store: GenerationStore, step: int) -> Generator:
        module = self._stage.role.module
        return Generator(
            backbone=self._stage.backbone,
            modules={"live": module, "ema": module},
            weights_ids={weights: _weights_id(step, weights) for weights in ("live", "ema")},
            codec=self._codec,
            clips=self._clips,
            store=store,
            device=self._group.device,
            fps=self._resolved.config.data.fps,
            world_rank=self._group.world_rank,
            facts={
                "resolved_config_digest": self._resolved.resolved_digest,
                "route": self._resolved.route.key,
                "weights_step": step,
            },
            autocast=compute_dtype(self._resolved.config.train.fsdp),
            sequence=self._group.sequence,
        )

    def _plan(self, step: int, started: Sequence[PassPlan]) -> Mapping[str, Any]:
        validation = self._resolved.config.validation
        return {
            "schema": "solarwm.training-validation-plan.v1",
            "step": step,
            "selection_seed": validation.selection_seed,
            "noise_seed": validation.noise_seed,
            "cases": [case.manifest() for case in self._cases],
            "passes": [asdict(plan) for plan in started],
            "passes_not_started": [p.name for p in self._passes if p not in started],
        }

    def _failed(
        self, store: GenerationStore, plan: PassPlan, case: Case, fault: BaseException
    ) -> None:
        if self._group.place.sp_rank:
            return
        store.fail(plan.name, case, fault, world_rank=self._group.world_rank)
        self._session.emit(
            "validation_error", slot=case.slot, sample_id=case.sample_id, message=str(fault)
        )

    @contextmanager
    def _weights(self, weights: str) -> Iterator[None]:
        role = self._stage.role
        swapped = role.ema.swapped_in() if weights == "ema" and role.ema else nullcontext()
        role.module.eval()
        try:
            with swapped, torch.no_grad(), role.layout.gathered(role.module):
                yield
        finally:
            role.module.train()


def _weights_id(step: int, weights: str) -> str:
    return f"runtime:checkpoint_model_{step:06d}:step-{step:06d}#{weights}"
