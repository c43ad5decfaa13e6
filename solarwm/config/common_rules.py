"""Rules over several fields that hold for every family."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from solarwm.config.finding import Finding
from solarwm.config.sections import DataSection, RunBase
from solarwm.routes.spec import Profile


def geometry_faults(data: DataSection, profile: Profile, *, chunk: int) -> Iterator[Finding]:
    """Sizes the stride does not divide, and frame counts the VAE or the chunks forbid."""
    geometry = profile.geometry
    multiple = geometry.size_multiple
    for key, size in (("height", data.height), ("width", data.width)):
        if size % multiple:
            lower = size // multiple * multiple
            near = [value for value in (lower, lower + multiple) if value > 0]
            yield Finding(
                path=("data", key),
                code="config.geometry",
                message=f"data.{key} {size} is not a multiple of {multiple}",
                why=f"latents are {geometry.spatial_stride} times smaller and cut into patches",
                fixes=tuple(f"--set data.{key}={value}" for value in near),
            )
    latents = geometry.latents(data.pixel_frames)
    if latents is None or latents % chunk:
        legal = legal_frames(profile, data.pixel_frames, chunk=chunk)
        rule = f"{geometry.period_frames} n + {geometry.first_frames}"
        whole = f", in whole chunks of {chunk} latent frames" if chunk > 1 else ""
        yield Finding(
            path=("data", "pixel_frames"),
            code="config.geometry",
            message=f"data.pixel_frames {data.pixel_frames} is no legal clip length",
            why=f"the VAE takes {rule} frames{whole}; nearest: {', '.join(map(str, legal))}",
            fixes=tuple(f"--set data.pixel_frames={frames}" for frames in legal),
        )


def legal_frames(profile: Profile, frames: int, *, chunk: int) -> tuple[int, ...]:
    """The longest legal clip not above `frames` and the shortest above it, in pixel frames."""
    geometry = profile.geometry
    lower = upper = None
    for latents in range(geometry.first_latents, 4096):
        count = geometry.frames(latents)
        if count is None or latents % chunk:
            continue
        if count <= frames:
            lower = count
        else:
            upper = count
            break
    return tuple(count for count in (lower, upper) if count is not None)


STORE_SCHEMES: dict[str, tuple[str, ...]] = {
    "gcs": ("gs://",),
    "s3": ("s3://",),
    "http": ("https://", "http://"),
    "hf": ("hf://",),
}
"""The addresses that each kind of store takes."""


def transport_faults(data: DataSection) -> Iterator[Finding]:
    """Transports that lack what their kind needs, or carry what it cannot use."""
    transport = data.transport
    here = ("data", "transport")
    if transport.kind != "local":
        schemes = STORE_SCHEMES[transport.kind]
        if not transport.root.startswith(schemes):
            yield Finding(
                path=(*here, "root"),
                code="config.value",
                message=f"a {transport.kind} transport needs a {' or '.join(schemes)} root",
                fixes=(
                    "--set data.transport.kind=local",
                    f"--set data.transport.root={schemes[0]}BUCKET/PREFIX",
                ),
            )
        needed = {"cache_dir": transport.cache_dir, "cache_max_gib": transport.cache_max_gib}
        for key, value in needed.items():
            if value is None:
                yield missing((*here, key), "shards of a bucket are read through a local cache")
        if data.index_root is None:
            yield missing(("data", "index_root"), "an index cannot be read from a bucket")
        return
    if "://" in transport.root:
        kinds = [kind for kind, found in STORE_SCHEMES.items() if transport.root.startswith(found)]
        yield Finding(
            path=(*here, "root"),
            code="config.value",
            message="a local transport needs a directory, not an address",
            fixes=(f"--set data.transport.kind={kinds[0] if kinds else 'gcs'}",),
        )
    for key in ("cache_dir", "cache_max_gib"):
        if getattr(transport, key) is not None:
            yield Finding(
                path=(*here, key),
                code="config.conflict",
                message=f"data.transport.{key} is for buckets; a local transport has no cache",
                fixes=(f"remove data.transport.{key}",),
            )


def pass_faults(config: RunBase) -> Iterator[Finding]:
    """Pass names that are not unique, and generation that has no pass."""
    validation = config.validation
    seen: set[str] = set()
    for index, item in enumerate(validation.named_passes):
        if item.name in seen:
            yield Finding(
                path=("validation", "passes", index, "name"),
                code="config.conflict",
                message=f"the pass name {item.name!r} is used twice",
                why="every pass writes into a directory of its name",
                fixes=("give each pass its own name",),
            )
        seen.add(item.name)
    wanted = config.action == "infer" or config.validate_every > 0
    if wanted and validation.sample_count > 0 and not validation.passes:
        yield missing(
            ("validation", "passes"),
            f"{validation.sample_count} samples are asked for, but by no pass",
        )


def base_faults(config: RunBase, profile: Profile, *keys: str) -> Iterator[Finding]:
    """Fields of the base model that the published size needs."""
    if profile.name != "released":
        return
    for key in keys:
        if getattr(config.model, key) is None:
            yield missing(
                ("model", key),
                "the published size has no weights of its own; a small profile needs none",
            )


def execution_faults(config: Any) -> Iterator[Finding]:
    """Ways of running that exclude each other."""
    sharding, address = config.train.fsdp, config.checkpoint.copy_to
    if address is not None and not all(address.partition("://")):
        yield Finding(
            path=("checkpoint", "copy_to"),
            code="config.value",
            message="checkpoint.copy_to is the address of an object store",
            why=f"{address!r} has no scheme; runtime.output_dir is where checkpoints lie locally",
            fixes=("--set checkpoint.copy_to=s3://BUCKET/RUN", "--set checkpoint.copy_to=null"),
        )
    if sharding.cpu_offload and sharding.strategy in ("none", "NO_SHARD"):
        yield Finding(
            path=("train", "fsdp", "cpu_offload"),
            code="config.conflict",
            message="train.fsdp.cpu_offload needs shards, and the strategy replicates",
            why=f"train.fsdp.strategy is {sharding.strategy}",
            fixes=("--set train.fsdp.strategy=FULL_SHARD", "--set train.fsdp.cpu_offload=false"),
        )
    if sharding.recompute_every > 1 and not sharding.activation_checkpointing:
        yield Finding(
            path=("train", "fsdp", "recompute_every"),
            code="config.conflict",
            message="train.fsdp.recompute_every says which blocks are recomputed, and none is",
            why="train.fsdp.activation_checkpointing is false",
            fixes=(
                "--set train.fsdp.activation_checkpointing=true",
                "--set train.fsdp.recompute_every=1",
            ),
        )
    if config.runtime.compile_blocks and config.distributed.sequence_parallel_size > 1:
        yield Finding(
            path=("runtime", "compile_blocks"),
            code="config.conflict",
            message="blocks that exchange tokens with other ranks cannot be compiled",
            why=f"distributed.sequence_parallel_size is {config.distributed.sequence_parallel_size}",
            fixes=(
                "--set runtime.compile_blocks=false",
                "--set distributed.sequence_parallel_size=1",
            ),
        )


def missing(path: tuple[str | int, ...], why: str) -> Finding:
    """A key that these settings need."""
    dotted = Finding(path=path, code="", message="").dotted
    return Finding(
        path=path,
        code="config.missing-key",
        message=f"{dotted} is missing",
        why=why,
        fixes=(f"--set {dotted}=VALUE",),
    )


def even_cases(config: RunBase) -> Iterator[Finding]:
    """Sample counts that do not fill every logical data-parallel rank equally."""
    group = config.distributed.sequence_parallel_size
    ranks = max(1, config.distributed.world_size // group)
    count = config.validation.sample_count
    if count % ranks:
        lower = count // ranks * ranks
        near = [value for value in (lower, lower + ranks) if value > 0]
        yield Finding(
            path=("validation", "sample_count"),
            code="config.value",
            message=f"validation.sample_count {count} is not a multiple of {ranks}",
            why=f"each of the {ranks} logical data-parallel ranks generates as many",
            fixes=tuple(f"--set validation.sample_count={value}" for value in near),
        )
