"""What must hold between fields of a MiniMax-H3 config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solarwm.config import common_rules
from solarwm.config.common_rules import missing
from solarwm.config.finding import Finding
from solarwm.routes.spec import BackboneSpec, Profile

_ROLES = {"stage1": ("student",), "stage2": ("student", "teacher", "critic")}


def rules(config: Any, spec: BackboneSpec, profile: Profile) -> list[Finding]:
    """Every fault between fields of a validated H3 run config, all at once."""
    faults = [
        *common_rules.base_faults(config, profile, "checkpoint_path"),
        *common_rules.geometry_faults(config.data, profile, chunk=1),
        *common_rules.transport_faults(config.data),
        *_support_files(config, profile),
    ]
    if config.action == "preencode":
        return faults
    return [
        *faults,
        *common_rules.pass_faults(config),
        *_cases(config),
        *_raw_index(config, profile),
        *_objective(config),
        *_start(config, profile),
    ]


def _support_files(config: Any, profile: Profile) -> Iterator[Finding]:
    if profile.name != "released" or config.action == "preencode":
        return
    for key in ("silence_latents_path", "encoder_contract_path"):
        if getattr(config.data, key) is None:
            yield missing(("data", key), "the published latents come with it")


def _cases(config: Any) -> Iterator[Finding]:
    if config.inference.length_policy == "fixed":
        yield from common_rules.even_cases(config)


def _raw_index(config: Any, profile: Profile) -> Iterator[Finding]:
    if config.train.stage != "stage1" or profile.name != "released":
        return
    if config.data.raw_test_index is None and config.validation.prepared_plan is None:
        why = "Stage1 rolls out further than an encoded clip, so it needs the raw camera tracks"
        yield missing(("data", "raw_test_index"), why)


def _objective(config: Any) -> Iterator[Finding]:
    train = config.train
    if train.stage == "stage1":
        total = train.diffusion_ratio + train.consistency_ratio
        if total > 1:
            yield Finding(
                path=("train", "consistency_ratio"),
                code="config.conflict",
                message=f"diffusion and consistency shares add up to {total:g}, more than 1",
                fixes=(f"--set train.consistency_ratio={1 - train.diffusion_ratio:g}",),
            )
    if train.stage == "stage2" and train.score_min_sigma >= train.score_max_sigma:
        yield Finding(
            path=("train", "score_max_sigma"),
            code="config.conflict",
            message="score_max_sigma must be above score_min_sigma",
            why=f"noise levels go from {train.score_min_sigma:g} to {train.score_max_sigma:g}",
            fixes=("--set train.score_min_sigma=0.02", "--set train.score_max_sigma=0.98"),
        )


def _start(config: Any, profile: Profile) -> Iterator[Finding]:
    checkpoint, stage = config.checkpoint, config.train.stage
    if config.action == "infer":
        if checkpoint.resume_from is None and config.runtime.weights_checkpoint is None:
            yield missing(("checkpoint", "resume_from"), "generation needs a trained adapter")
        if config.inference.length_policy == "source":
            yield from _source_length(config, profile)
        return
    if config.inference.length_policy == "source":
        yield Finding(
            path=("inference", "length_policy"),
            code="config.conflict",
            message="source-length generation belongs to `infer` with a Stage2 model",
            fixes=("--set inference.length_policy=fixed",),
        )
    if checkpoint.resume_from is not None or profile.name != "released":
        return
    for role in _ROLES.get(stage, ()):
        if checkpoint.initialization is None or getattr(checkpoint.initialization, role) is None:
            yield missing(
                ("checkpoint", "initialization", role),
                f"{stage} starts from adapters of the stage before it",
            )


def _source_length(config: Any, profile: Profile) -> Iterator[Finding]:
    if config.train.stage != "stage2":
        yield Finding(
            path=("inference", "length_policy"),
            code="config.conflict",
            message="source-length generation needs a Stage2 model",
            fixes=("--set inference.length_policy=fixed",),
        )
    for key in ("fps_policy", "plan", "work_dir", "dataset_root", "expected_step"):
        if getattr(config.inference, key) is None:
            yield missing(("inference", key), "source-length generation needs it")
    ranks, group = config.distributed.world_size, config.distributed.sequence_parallel_size
    if profile.name == "released" and (ranks, group) != (8, 8):
        yield Finding(
            path=("distributed", "world_size"),
            code="config.topology",
            message="source-length generation runs on 8 ranks that share each sample",
            why=f"the config has {ranks} ranks in groups of {group}",
            fixes=("--set distributed.world_size=8", "--set distributed.sequence_parallel_size=8"),
        )
