"""From a resolved config to the parts of `solarwm play`: weights, codec, and where to begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solarwm.camera.intrinsics import fixed_intrinsics
from solarwm.config.resolve import require_no_placeholders
from solarwm.data.framing import framed
from solarwm.data.index import read_index
from solarwm.data.transport.choice import open_reader
from solarwm.distributed.environment import read_launcher
from solarwm.errors.types import SolarError
from solarwm.inference import plan as plans_of
from solarwm.inference.clips import HeldOutClips
from solarwm.inference.own_clip import read_image
from solarwm.inference.prepared import weight_source
from solarwm.inference.weights import check_fit, load_modules
from solarwm.runs import assets

if TYPE_CHECKING:
    from solarwm.config.resolve import ResolvedRun
    from solarwm.play.world import Engine, Start

ALONE = ("distributed.world_size=1", "distributed.sequence_parallel_size=1")
"""Settings of a program that runs in one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Where a walk begins: a picture, or the first held-out clip."""

    image: Path | None = None
    prompt: str | None = None
    """What the picture shows; None takes the clip's own caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """All that serving needs."""

    engine: Engine
    start: Start
    fps: float
    seed: int


@contextmanager
def opened(resolved: ResolvedRun, asked: Asked) -> Iterator[Opened]:
    """The parts, until the block ends. Files are checked before weights are read.

    Raises `play.not-causal` (exit 2) for a config without an autoregressive pass, and what `infer`
    raises for weights, clips and pictures.
    """
    require_no_placeholders(resolved, unread="data" if asked.image is not None else None)
    plan = _plan(resolved)
    config: Any = resolved.config
    source = weight_source(resolved)
    assets.require(resolved)
    plan = replace(plan, numerics=check_fit(source, resolved))
    start = _start(resolved, asked)

    from solarwm.config.route import load
    from solarwm.distributed.devices import pick_device
    from solarwm.distributed.group import open_group
    from solarwm.distributed.sharding import compute_dtype
    from solarwm.play.world import Engine, check_endless

    if config.runtime.threads_per_rank:
        import torch

        torch.set_num_threads(config.runtime.threads_per_rank)
    device = pick_device(config.runtime.device, local_rank=0)
    launcher = read_launcher({}, process_id=0)
    timeout_s = config.distributed.timeout_s
    with open_group(launcher, device=device, sp_size=1, timeout_s=timeout_s):
        spec = resolved.route.spec
        model = config.model.model_copy(update={"numerics": plan.numerics})
        backbone = load(spec.heavy)(spec.profiles[config.model.profile], model)
        check_endless(backbone)
        modules = load_modules(
            source,
            (plan.weights,),
            backbone=backbone,
            device=device,
            endpoint_gate=plans_of.endpoint_gate(resolved),
            sharding=config.train.fsdp,
        )
        base = config.model.base_path
        yield Opened(
            engine=Engine(
                backbone=backbone,
                module=modules[plan.weights],
                codec=backbone.codec(
                    base_path=Path(base) if base else None,
                    assets=config.model.assets,
                    device=device,
                ),
                plan=plan,
                device=device,
                autocast=compute_dtype(config.train.fsdp),
            ),
            start=start,
            fps=config.data.fps or 16.0,
            seed=config.validation.noise_seed,
        )


def _plan(resolved: ResolvedRun) -> plans_of.PassPlan:
    plans = plans_of.pass_plans(resolved, numerics="corrected")
    causal = [plan for plan in plans if plan.mode == plans_of.AUTOREGRESSIVE]
    if not causal:
        raise SolarError(
            "play.not-causal",
            f"{resolved.route.key} makes all frames at once; a walk needs a model that goes chunk by chunk",
            where="validation.passes",
            why=f"no pass is autoregressive among {', '.join(plan.name for plan in plans) or 'none'}",
            fixes=[
                "give the config of a Stage1 or Stage2 model, such as quickstart/infer-stage2.yaml"
            ],
        )
    return causal[0]


def _start(resolved: ResolvedRun, asked: Asked) -> Start:
    from solarwm.play.world import Start

    data: Any = resolved.config.data
    if asked.image is not None:
        picture = framed(read_image(asked.image)[None], data.height, data.width)[0]
        return Start(
            name=asked.image.stem,
            picture_YX3=picture,
            prompt=asked.prompt or "",
            intrinsics_33=fixed_intrinsics(),
        )
    validation: Any = resolved.config.validation
    with open_reader(data) as reader:
        clips = HeldOutClips(
            index=read_index(plans_of.test_index_path(resolved)),
            reader=reader,
            cut=replace(
                plans_of.clip_cut(resolved), frames=1, latents=1, least_frames=0, whole_track=False
            ),
            rules=replace(plans_of.camera_rules(resolved), latent_rows=(0,)),
        )
        (case,) = clips.select(
            1, selection_seed=validation.selection_seed, base_noise_seed=validation.noise_seed
        )
        clip = clips.clip(case)
    return Start(
        name=case.sample_id,
        picture_YX3=clip.pixels_NYX3[0],
        prompt=case.prompt if asked.prompt is None else asked.prompt,
        intrinsics_33=clip.intrinsics_33,
    )
