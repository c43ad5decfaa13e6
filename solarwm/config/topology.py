"""What a config asks of the machines: rank layout, token split, saves and validation waves. Pure arithmetic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple, cast

from solarwm.config.batching import Batch, repairs
from solarwm.config.finding import Finding


class Inputs(NamedTuple):
    """The numbers a topology is worked out from; None where the config says nothing."""

    world_size: int
    local_world_size: int | None
    sequence_parallel_size: int
    micro_batch_size: int
    accumulation: int
    global_batch_size: int | None
    frames: int | None
    latents: int | None
    tokens_per_latent: int | None
    num_heads: int | None
    frame_splits: tuple[int, ...] | None
    token_splits: tuple[int, ...] | None
    max_steps: int
    save_every: int
    save_steps: tuple[int, ...]
    """Further steps to save at."""
    validate_every: int
    validation_steps: tuple[int, ...]
    """Further steps to validate at."""
    sample_count: int
    num_passes: int
    checks_batch: bool
    strategy: str | None = None
    """How parameters are spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The layout of a run, as shown by `config resolve`."""

    world_size: int
    nodes: int | None
    """Number of machines, where the config gives ranks per machine."""
    sequence_parallel_size: int
    logical_dp: int
    data_mesh: dict[str, int]
    """Axes of the ranks that data sees, outermost first: `dp` partitions of `sp` ranks that share
    a sample."""
    shard_mesh: dict[str, int]
    """Axes that parameters are spread over, outermost first: copies (`replicate`) of what lies in
    parts (`shard`). Empty where every rank holds everything, and for hybrid shards as long as the
    config does not say how many ranks a machine has."""
    micro_batch_size: int
    accumulation: int
    global_batch_size: int
    equation: str
    samples_per_step: int
    frames: int | None
    latents: int | None
    tokens_per_latent: int | None
    tokens: int | None
    """Video tokens of one sample over all its ranks."""
    latents_per_sp_rank: tuple[int, ...]
    tokens_per_sp_rank: tuple[int, ...]
    padding_latents_per_sp_rank: tuple[int, ...]
    """Latent frames each rank pads to reach the largest share."""
    checkpoints_expected: int
    validations_expected: int
    validation_waves_expected: int
    """Waves of one sample per data partition, over all passes and validations of the run."""

    def plain(self) -> dict[str, object]:
        """As JSON values."""
        return {
            key: list(cast("tuple[int, ...]", value)) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }


def split_latents(latents: int, sequence_parallel_size: int) -> tuple[int, ...]:
    """Whole latent frames of each rank of a group; the remainder goes to the low ranks."""
    share, rest = divmod(latents, sequence_parallel_size)
    return tuple(share + (index < rest) for index in range(sequence_parallel_size))


def divisors(number: int) -> tuple[int, ...]:
    """The divisors of a positive number, ascending."""
    small = [step for step in range(1, int(number**0.5) + 1) if number % step == 0]
    return tuple(sorted({*small, *(number // step for step in small)}))


def build(inputs: Inputs) -> Topology:
    """The layout of legal inputs; call `check` first."""
    batch = _batch(inputs)
    latents = inputs.latents or 0
    shares = split_latents(latents, inputs.sequence_parallel_size) if latents else ()
    per_latent = inputs.tokens_per_latent or 0
    validations = _times(inputs.max_steps, inputs.validate_every, inputs.validation_steps)
    waves = -(-inputs.sample_count // batch.logical_dp) * inputs.num_passes
    standing = inputs.max_steps == 0 and inputs.sample_count > 0
    local = inputs.local_world_size
    return Topology(
        world_size=inputs.world_size,
        nodes=-(-inputs.world_size // local) if local else None,
        sequence_parallel_size=inputs.sequence_parallel_size,
        logical_dp=batch.logical_dp,
        data_mesh={"dp": batch.logical_dp, "sp": inputs.sequence_parallel_size},
        shard_mesh=_shard_mesh(inputs),
        micro_batch_size=inputs.micro_batch_size,
        accumulation=inputs.accumulation,
        global_batch_size=batch.global_batch_size,
        equation=batch.equation,
        samples_per_step=batch.product,
        frames=inputs.frames,
        latents=inputs.latents,
        tokens_per_latent=inputs.tokens_per_latent,
        tokens=latents * per_latent if latents and per_latent else None,
        latents_per_sp_rank=shares,
        tokens_per_sp_rank=tuple(share * per_latent for share in shares) if per_latent else (),
        padding_latents_per_sp_rank=tuple(max(shares) - share for share in shares)
        if shares
        else (),
        checkpoints_expected=_times(inputs.max_steps, inputs.save_every, inputs.save_steps),
        validations_expected=validations,
        validation_waves_expected=waves if standing else waves * validations,
    )


def shard_axes(strategy: str | None, *, world_size: int, local_world_size: int) -> dict[str, int]:
    """Names and sizes of the axes parameters are spread over, outermost first; empty for replicas.

    Hybrid shards on one machine are full shards.
    """
    if strategy in (None, "none", "NO_SHARD"):
        return {}
    num_nodes = world_size // local_world_size
    if strategy == "HYBRID_SHARD" and num_nodes > 1:
        return {"replicate": num_nodes, "shard": local_world_size}
    return {"shard": world_size}


def _shard_mesh(inputs: Inputs) -> dict[str, int]:
    world, local = inputs.world_size, inputs.local_world_size
    if local is None or local > world or world % local:
        if inputs.strategy == "HYBRID_SHARD" and world > 1:
            return {}
        local = world
    return shard_axes(inputs.strategy, world_size=world, local_world_size=local)


def _times(steps: int, every: int, further: tuple[int, ...]) -> int:
    """How many of the steps 1..`steps` are a multiple of `every` (0 = none) or listed."""
    listed = {step for step in further if 0 < step <= steps and not (every and step % every == 0)}
    return (steps // every if every else 0) + len(listed)


def check(inputs: Inputs) -> list[Finding]:
    """Every reason why the layout is impossible, with the legal values.

    What follows from an impossible group size (splits, batch) is not told beside it.
    """
    found: list[Finding] = []
    size, world = inputs.sequence_parallel_size, inputs.world_size
    sp_path = ("distributed", "sequence_parallel_size")
    if size < 1 or world < 1 or inputs.micro_batch_size < 1 or inputs.accumulation < 1:
        return found  # the type of the field already refuses these
    legal = _legal_sizes(inputs)
    near = [n for n in legal if n <= size][-1:] + [n for n in legal if n > size][:1]
    fix = tuple(f"--set distributed.sequence_parallel_size={n}" for n in near)
    rule = f"with {world} ranks and this clip, legal are {_listed(legal)}"
    if world % size:
        found.append(
            _fault(
                sp_path,
                f"sequence_parallel_size {size} does not divide world_size {world}",
                why=f"ranks form whole groups of equal size; {world} splits into groups of "
                f"{_listed(divisors(world))}; {rule}",
                fixes=fix,
            )
        )
    if inputs.num_heads and inputs.num_heads % size:
        degrees = divisors(inputs.num_heads)
        found.append(
            _fault(
                sp_path,
                f"{inputs.num_heads} attention heads cannot be shared by {size} ranks",
                why=f"every rank takes whole heads; legal degrees of this model are {_listed(degrees)}; {rule}",
                fixes=fix,
            )
        )
    if inputs.latents and size > inputs.latents:
        found.append(
            _fault(
                sp_path,
                f"{size} sequence-parallel ranks for {inputs.latents} latent frames",
                why=f"every rank takes at least one whole latent frame; at most {inputs.latents}; {rule}",
                fixes=fix,
            )
        )
    if found:
        return found
    if inputs.latents:
        found += _split_faults(inputs)
    if inputs.checks_batch and inputs.global_batch_size is not None:
        batch = _batch(inputs)
        if not batch.holds:
            found.append(
                Finding(
                    path=("train", "global_batch_size"),
                    code="config.batch",
                    message=f"global_batch_size is {batch.global_batch_size}, but one step takes "
                    f"{batch.product} samples",
                    why="(world_size / sequence_parallel_size) x micro_batch_size x grad_accum: "
                    + batch.equation,
                    fixes=tuple(repairs(batch)),
                )
            )
    return found


def _split_faults(inputs: Inputs) -> list[Finding]:
    found: list[Finding] = []
    legal = split_latents(inputs.latents or 0, inputs.sequence_parallel_size)
    tokens = tuple(share * (inputs.tokens_per_latent or 0) for share in legal)
    for name, written, wanted in (
        ("sp_frame_splits", inputs.frame_splits, legal),
        ("sp_token_splits", inputs.token_splits, tokens),
    ):
        if written is None or written == wanted:
            continue
        unit = "latent frames" if name == "sp_frame_splits" else "tokens"
        found.append(
            _fault(
                ("distributed", name),
                f"{name} {_listed(written)} is not how {sum(wanted)} {unit} are split over "
                f"{len(wanted)} ranks",
                why=f"it adds up to {sum(written)} over {len(written)} ranks; whole latent frames, the "
                f"remainder to the low ranks, give {_listed(wanted)}",
                fixes=(
                    f"--set 'distributed.{name}=[{_listed(wanted)}]'",
                    f"leave {name} out: it is filled in",
                ),
            )
        )
    return found


def _legal_sizes(inputs: Inputs) -> tuple[int, ...]:
    return tuple(
        size
        for size in divisors(inputs.world_size)
        if (not inputs.num_heads or inputs.num_heads % size == 0)
        and (not inputs.latents or size <= inputs.latents)
    )


def _batch(inputs: Inputs) -> Batch:
    product = (
        inputs.world_size
        // inputs.sequence_parallel_size
        * inputs.micro_batch_size
        * inputs.accumulation
    )
    return Batch(
        world_size=inputs.world_size,
        sequence_parallel_size=inputs.sequence_parallel_size,
        micro_batch_size=inputs.micro_batch_size,
        accumulation=inputs.accumulation,
        global_batch_size=inputs.global_batch_size
        if inputs.global_batch_size is not None
        else product,
    )


def _fault(
    path: tuple[str | int, ...], message: str, *, why: str, fixes: tuple[str, ...]
) -> Finding:
    return Finding(path=path, code="config.topology", message=message, why=why, fixes=fixes)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
