"""What must hold between fields of a Wan config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from solarwm.config import common_rules
from solarwm.config.common_rules import missing
from solarwm.config.finding import Finding
from solarwm.routes.spec import BackboneSpec, Profile

_SOLVERS = {
    ("stage0p5", "flow_matching"): ("bidirectional", ("unipc", "euler")),
    ("stage1", "flow_matching"): ("autoregressive", ("unipc",)),
    ("stage1", "anyflow_forward_map"): ("autoregressive", ("flowmap",)),
    ("stage2", "flow_matching"): ("autoregressive", ("self_forcing",)),
}


def rules(config: Any, spec: BackboneSpec, profile: Profile) -> list[Finding]:
    """Every fault between fields of a validated Wan run config, all at once."""
    faults = [
        *common_rules.base_faults(config, profile, "base_path", "assets"),
        *common_rules.geometry_faults(config.data, profile, chunk=spec.chunk_latents),
        *common_rules.transport_faults(config.data),
        *_caches(config),
    ]
    if config.action == "preencode":
        return [*faults, *_preencode(config)]
    return [
        *faults,
        *common_rules.pass_faults(config),
        *common_rules.execution_faults(config),
        *_data(config),
        *_passes(config, spec, profile),
        *_checkpoint(config, profile),
        *_objective(config, profile),
        *_inference(config),
    ]


def _data(config: Any) -> Iterator[Finding]:
    data = config.data
    if data.encoding == "preencoded":
        if config.train.stage != "stage0p5":
            yield Finding(
                path=("data", "encoding"),
                code="config.conflict",
                message=f"{config.train.stage} runs on online data only",
                why="causal stages need the first frame of every clip encoded alone",
                fixes=("--set data.encoding=online",),
            )
        if data.preencode_schema is None:
            yield missing(
                ("data", "preencode_schema"),
                "preencoded data must name a latent format of its size",
            )
        if data.random_start:
            yield Finding(
                path=("data", "random_start"),
                code="config.conflict",
                message="preencoded clips have a fixed start",
                fixes=("--set data.random_start=false",),
            )
    if config.inference.length == "camera" and data.random_start:
        yield Finding(
            path=("data", "random_start"),
            code="config.conflict",
            message="camera-length generation starts at the first frame of each source",
            fixes=("--set data.random_start=false",),
        )


def _caches(config: Any) -> Iterator[Finding]:
    runtime = config.runtime
    for name in ("data_cache", "validation_cache"):
        directory, size = getattr(runtime, f"{name}_dir"), getattr(runtime, f"{name}_max_gib")
        if directory is None and size is None:
            continue
        if config.data.transport.kind == "local":
            yield Finding(
                path=("runtime", f"{name}_dir" if directory is not None else f"{name}_max_gib"),
                code="config.conflict",
                message=f"runtime.{name}_* is for buckets; a local transport has no cache",
                fixes=(f"remove runtime.{name}_dir and runtime.{name}_max_gib",),
            )
        elif directory is None or size is None:
            absent = f"{name}_dir" if directory is None else f"{name}_max_gib"
            yield missing(("runtime", absent), "directory and size of a cache go together")


def _passes(config: Any, spec: BackboneSpec, profile: Profile) -> Iterator[Finding]:
    train, validation = config.train, config.validation
    mode, solvers = _SOLVERS[train.stage, train.objective]
    camera_length = config.inference.length == "camera"
    for index, item in enumerate(validation.passes):
        here = ("validation", "passes", index)
        if item.mode != mode or item.solver not in solvers:
            yield Finding(
                path=(*here, "solver" if item.mode == mode else "mode"),
                code="config.value",
                message=f"pass {item.name!r}: {item.mode} {item.solver} does not fit {train.stage}",
                why=f"this route generates in mode {mode} with {' or '.join(solvers)}",
                fixes=(f"mode: {mode}", f"solver: {solvers[0]}"),
            )
        if (item.weights == "model") != camera_length:
            good = "weights: model" if camera_length else "weights: live or weights: ema"
            yield Finding(
                path=(*here, "weights"),
                code="config.value",
                message=f"pass {item.name!r} cannot use weights {item.weights!r} here",
                why="`model` is the role named by a release, for camera-length generation only",
                fixes=(good,),
            )
        yield from _rollout(config, item, here, spec, profile)


def _rollout(
    config: Any, item: Any, here: tuple[str | int, ...], spec: BackboneSpec, profile: Profile
) -> Iterator[Finding]:
    section, rollout, chunk = config.validation, item.rollout_latent_frames, spec.chunk_latents
    if rollout is None:
        if config.inference.length != "camera":
            yield missing((*here, "rollout_latent_frames"), "the length of the pass is not known")
        return
    if config.train.stage == "stage0p5" and rollout != config.data.latent_frames:
        yield Finding(
            path=(*here, "rollout_latent_frames"),
            code="config.value",
            message=f"the pass generates {config.data.latent_frames} latent frames, not {rollout}",
            why="a bidirectional model generates all latent frames of a clip together",
            fixes=(f"rollout_latent_frames: {config.data.latent_frames}",),
        )
    variable = item.variable_rollout_by_source
    variable = section.variable_rollout_by_source if variable is None else variable
    least = item.min_rollout_latent_frames or section.min_rollout_latent_frames or rollout
    plan = item.fixed_plan_pixel_frames or section.fixed_plan_pixel_frames
    for key, value in (("rollout_latent_frames", rollout), ("min_rollout_latent_frames", least)):
        if value % chunk:
            yield Finding(
                path=(*here, key),
                code="config.geometry",
                message=f"{key} {value} is not a multiple of {chunk}",
                why=f"latents are generated in chunks of {chunk}",
                fixes=(f"{key}: {value // chunk * chunk or chunk}",),
            )
    if least > rollout or (least != rollout and not variable):
        yield Finding(
            path=(*here, "min_rollout_latent_frames"),
            code="config.conflict",
            message=f"the shortest rollout is {least} latent frames, the longest {rollout}",
            why="they differ only with variable_rollout_by_source, and the first is the smaller",
            fixes=("variable_rollout_by_source: true", f"min_rollout_latent_frames: {rollout}"),
        )
    frames = profile.geometry.frames(rollout)
    if plan is not None and frames is not None and plan != frames:
        yield Finding(
            path=(*here, "fixed_plan_pixel_frames"),
            code="config.geometry",
            message=f"{rollout} latent frames are {frames} pixel frames, not {plan}",
            fixes=(f"fixed_plan_pixel_frames: {frames}",),
        )


def _checkpoint(config: Any, profile: Profile) -> Iterator[Finding]:
    checkpoint, stage = config.checkpoint, config.train.stage
    if config.action == "infer":
        if checkpoint.path is None:
            yield missing(("checkpoint", "path"), "generation needs trained weights")
        return
    needs_path = checkpoint.mode in ("weights_only", "full_resume")
    if needs_path and checkpoint.path is None:
        yield missing(("checkpoint", "path"), f"mode {checkpoint.mode} starts from a checkpoint")
    if checkpoint.mode == "weights_only" and checkpoint.weights is None:
        yield missing(("checkpoint", "weights"), "mode weights_only must say which weights to take")
    if checkpoint.mode == "stage2_roles":
        if stage != "stage2":
            yield Finding(
                path=("checkpoint", "mode"),
                code="config.conflict",
                message="mode stage2_roles belongs to Stage2",
                fixes=("--set checkpoint.mode=weights_only",),
            )
        elif checkpoint.roles is None:
            yield missing(
                ("checkpoint", "roles"), "Stage2 starts three roles, each from its own weights"
            )
    elif (
        profile.name == "released"
        and stage != "stage0p5"
        and checkpoint.mode in ("none", "weights_only")
    ):
        wanted = "stage2_roles" if stage == "stage2" else "weights_only"
        if checkpoint.mode != wanted:
            yield Finding(
                path=("checkpoint", "mode"),
                code="config.value",
                message=f"{stage} cannot start with checkpoint.mode {checkpoint.mode}",
                why="each stage starts from weights of the stage before it",
                fixes=(f"--set checkpoint.mode={wanted}",),
            )
    if (
        config.train.allow_camera_translation_transform_change_on_init
        and checkpoint.mode != "weights_only"
    ):
        yield Finding(
            path=("train", "allow_camera_translation_transform_change_on_init"),
            code="config.conflict",
            message="the translation transform may change only with mode weights_only",
            fixes=("--set checkpoint.mode=weights_only",),
        )


def _objective(config: Any, profile: Profile) -> Iterator[Finding]:
    train = config.train
    if train.objective == "anyflow_forward_map":
        total = train.anyflow_diffusion_ratio + train.anyflow_consistency_ratio
        if total > 1:
            yield Finding(
                path=("train", "anyflow_consistency_ratio"),
                code="config.conflict",
                message=f"diffusion and consistency shares add up to {total:g}, more than 1",
                fixes=(
                    f"--set train.anyflow_consistency_ratio={1 - train.anyflow_diffusion_ratio:g}",
                ),
            )
        guided = train.anyflow_fuse_guidance_scale != 1.0
        if guided and train.anyflow_negative_embedding is None and profile.name == "released":
            why = "a guidance scale other than 1 needs the encoded negative prompt"
            yield missing(("train", "anyflow_negative_embedding"), why)
    if train.stage == "stage2":
        yield from _stage2(config)


def _stage2(config: Any) -> Iterator[Finding]:
    train = config.train
    low, high = train.score_min_timestep, train.score_max_timestep
    if not low < high <= train.num_train_timesteps:
        yield Finding(
            path=("train", "score_max_timestep"),
            code="config.conflict",
            message="score times must rise, to at most the length of the time table",
            why=f"they go from {low:g} to {high:g} of {train.num_train_timesteps}",
            fixes=("--set train.score_min_timestep=20.0", "--set train.score_max_timestep=980.0"),
        )
    steps = train.denoising_step_list
    if (
        not steps
        or list(steps) != sorted(set(steps), reverse=True)
        or steps[0] > train.num_train_timesteps
    ):
        yield Finding(
            path=("train", "denoising_step_list"),
            code="config.value",
            message="denoising_step_list must fall strictly and start at 1000 at most",
            fixes=("--set train.denoising_step_list=[1000,750,500,250]",),
        )
    if config.action == "train" and train.real_guidance_scale > 0 and train.negative_prompt is None:
        yield missing(
            ("train", "negative_prompt"), "the guidance of the teacher needs a negative prompt"
        )


def _inference(config: Any) -> Iterator[Finding]:
    if config.inference.length == "camera" and (
        config.action != "infer" or config.train.stage != "stage2"
    ):
        yield Finding(
            path=("inference", "length"),
            code="config.conflict",
            message="camera-length generation belongs to `infer` with a Stage2 model",
            fixes=("--set inference.length=fixed",),
        )


def _preencode(config: Any) -> Iterator[Finding]:
    written, logical = config.preencode.output_root, config.preencode.logical_output_root
    if "://" in written or "://" in logical:
        return
    here, there = PurePosixPath(written), PurePosixPath(logical)
    if here.is_relative_to(there) or there.is_relative_to(here):
        yield Finding(
            path=("preencode", "logical_output_root"),
            code="config.conflict",
            message="neither output_root nor logical_output_root may lie inside the other",
            why=f"{written} and {logical} overlap",
            fixes=("give logical_output_root a directory of its own",),
        )
