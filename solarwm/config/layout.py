"""Picks the numbers of a topology out of plain config values, tolerating what is missing or of a wrong type."""

from __future__ import annotations

from typing import Any

from solarwm.config.document import get
from solarwm.config.finding import Finding
from solarwm.config.marks import Facts
from solarwm.config.plain import is_list, is_mapping
from solarwm.config.topology import Inputs


def inputs_of(values: dict[str, Any], facts: Facts) -> Inputs:
    """The numbers of `values`; a missing or mistyped one takes its neutral value (validation reports it)."""
    runtime = values.get("runtime")
    steps = _int(values, ("train", "max_steps"), 0)
    override = _int(values, ("runtime", "max_steps_override"), 0)
    training = values.get("action") == "train"
    passes = get(values, "validation", "passes")
    cadence = is_mapping(runtime) and "save_every" in runtime
    save_path = ("runtime", "save_every") if cadence else ("checkpoint", "save_every_steps")
    cadence = is_mapping(runtime) and "validate_every" in runtime
    validate_path = (
        ("runtime", "validate_every") if cadence else ("validation", "validate_every_steps")
    )
    preencode = values.get("action") == "preencode"
    return Inputs(
        world_size=_int(values, ("distributed", "world_size"), 1),
        local_world_size=_int(values, ("distributed", "local_world_size"), 0) or None,
        sequence_parallel_size=_int(values, ("distributed", "sequence_parallel_size"), 1),
        micro_batch_size=_int(values, ("train", "micro_batch_size"), 1),
        accumulation=_int(values, ("train", "grad_accum"), 1),
        global_batch_size=_int(values, ("train", "global_batch_size"), 0) or None,
        frames=facts.pixel_frames if facts.pixel_frames > 0 else None,
        latents=facts.latents if facts.pixel_frames > 0 else None,
        tokens_per_latent=facts.tokens_per_latent or None,
        num_heads=None if preencode else facts.dims.num_heads,
        frame_splits=_ints(get(values, "distributed", "sp_frame_splits")),
        token_splits=_ints(get(values, "distributed", "sp_token_splits")),
        max_steps=(override or steps) if training else 0,
        save_every=_int(values, save_path, 0),
        save_steps=_ints(get(values, "checkpoint", "save_steps")) or (),
        validate_every=_int(values, validate_path, 0),
        validation_steps=_ints(get(values, "runtime", "validation_steps")) or (),
        sample_count=_int(
            values, ("validation", "sample_count"), _int(values, ("inference", "sample_count"), 0)
        ),
        num_passes=len(passes) if is_list(passes) else 1,
        checks_batch=training,
        strategy=_strategy(values) if training else None,
    )


def _strategy(values: dict[str, Any]) -> str | None:
    sharding = get(values, "train", "fsdp")
    if not is_mapping(sharding):
        return None
    named = sharding.get("strategy", sharding.get("sharding_strategy"))
    return named if isinstance(named, str) else None


def geometry_findings(facts: Facts, route_frames: tuple[int, ...]) -> list[Finding]:
    """Clip sizes that the VAE, the patch grid or the released route forbids, with the legal ones."""
    found: list[Finding] = []
    geometry = facts.geometry
    frames = facts.pixel_frames
    if frames > 0 and geometry.latents(frames) is None:
        made_for = route_frames if facts.released else ()
        legal = _nearest(made_for, frames) or geometry.nearest_frames(frames)
        formula = f"{geometry.period_frames} n + {geometry.first_frames}"
        sizes = f"; this route is made for {', '.join(map(str, made_for))}" if made_for else ""
        found.append(
            Finding(
                path=("data", "pixel_frames"),
                code="config.geometry",
                message=f"{frames} pixel frames cannot be encoded by the VAE of {facts.spec.title}",
                why=f"legal counts are {formula}; nearest: "
                f"{', '.join(map(str, geometry.nearest_frames(frames)))}{sizes}",
                fixes=tuple(f"--set data.pixel_frames={count}" for count in legal if count > 0),
            )
        )
    elif facts.released and route_frames and frames not in route_frames:
        found.append(
            Finding(
                path=("data", "pixel_frames"),
                code="config.geometry",
                message=f"this route of {facts.spec.title} is not made for {frames} pixel frames",
                why=f"released sizes: {', '.join(map(str, route_frames))}",
                fixes=tuple(
                    f"--set data.pixel_frames={count}" for count in _nearest(route_frames, frames)
                ),
            )
        )
    multiple = geometry.size_multiple
    for name, size in (("height", facts.height), ("width", facts.width)):
        if size > 0 and size % multiple == 0:
            continue
        lower = max(multiple, size // multiple * multiple)
        found.append(
            Finding(
                path=("data", name),
                code="config.geometry",
                message=f"data.{name} {size} is not a positive multiple of {multiple}",
                why=f"the VAE and the patch grid of {facts.spec.title} need multiples of {multiple}; the "
                f"nearest are {lower} and {lower + multiple}",
                fixes=(f"--set data.{name}={lower}",),
            )
        )
    return found


def _nearest(counts: tuple[int, ...], frames: int) -> tuple[int, ...]:
    """The two of `counts` that are nearest to `frames`, the nearest first."""
    return tuple(sorted(counts, key=lambda count: (abs(count - frames), count))[:2])


def _int(values: Any, path: tuple[str, ...], default: int) -> int:
    value = get(values, *path)
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
    )


def _ints(value: Any) -> tuple[int, ...] | None:
    if is_list(value) and all(type(item) is int for item in value):
        return tuple(value)
    return None
