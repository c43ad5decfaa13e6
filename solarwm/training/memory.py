"""What a route needs on each device, from the meta device and a fake process group: no weights, no GPU.

Shapes: B batch, F latent frames, C latent channels, H W latent height and width, T text tokens, D text
width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from solarwm.backbones.seam import Backbone
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.collectives import Collectives
from solarwm.distributed.environment import Launcher
from solarwm.distributed.group import RankGroup
from solarwm.distributed.mesh import place_of
from solarwm.distributed.sharding import DTYPES, REPLICATED, lay_out, local
from solarwm.nn.cache import CleanContext
from solarwm.training.assembly import open_backbone
from solarwm.training.initial_weights import FLOW_MAP
from solarwm.training.stage import checkpoint_activations

CONTEXT_BYTES = 2**30
"""Taken by the device's runtime and the communication buffers before any tensor; an assumption."""
SLACK = 0.06
"""Share lost to fragmentation; an assumption."""
MASTER_SIZE, MOMENTS_SIZE, AVERAGE_SIZE = 4, 8, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """The choices that decide a device's share; each can be changed to see what that would save."""

    world_size: int
    local_world_size: int
    sequence_parallel_size: int
    micro_batch_size: int
    strategy: str
    activation_checkpointing: bool
    param_dtype: str | None
    average: bool
    recompute_every: int = 1
    cpu_offload: bool = False

    @classmethod
    def of(cls, resolved: Any, *, local_world_size: int) -> MemorySettings:
        """The settings of a resolved training run with so many devices a node."""
        config = resolved.config
        sharding = config.train.fsdp
        world_size = resolved.topology.world_size
        return cls(
            world_size=world_size,
            local_world_size=min(local_world_size, world_size),
            sequence_parallel_size=config.distributed.sequence_parallel_size,
            micro_batch_size=config.train.micro_batch_size,
            strategy=sharding.strategy,
            activation_checkpointing=sharding.activation_checkpointing,
            param_dtype=sharding.param_dtype,
            average=config.ema.enabled,
            recompute_every=getattr(sharding, "recompute_every", 1),
            cpu_offload=getattr(sharding, "cpu_offload", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes on the fullest device."""

    parameters: int
    """Stored weights of all roles: shards, or everything."""
    gathered: int
    """Weights gathered for computing, in the compute dtype."""
    gradients: int
    optimizer: int
    average: int
    activations: int
    """Kept for the backward pass, with what one recomputed block needs."""
    overhead: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, part.name) for part in fields(self))

    def plain(self) -> dict[str, int]:
        """As JSON values, with the total."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return {f"{name}_bytes": value for name, value in {**parts, "total": self.total}.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One change and the bytes it would save on each device."""

    change: str
    """As `--set` items."""
    saves: int
    total: int


class MemoryPlanner:
    """Estimates for one route; models and forwards are measured once and kept."""

    def __init__(self, resolved: Any) -> None:
        self._resolved = resolved
        self._backbone: Backbone = open_backbone(resolved)
        self._shares: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        self._activations: dict[tuple[Any, ...], int] = {}
        self.num_parameters = sum(p.numel() for p in self._build().parameters())

    def estimate(self, settings: MemorySettings) -> MemoryEstimate:
        """Bytes on the fullest device (rank 0 holds the largest shards)."""
        share, block, rest = self._share(settings)
        roles = self._resolved.route.roles
        trained = sum(role in ("student", "critic") for role in roles)
        width = _size(settings.param_dtype)
        if settings.strategy in REPLICATED:
            gathered = share * width if width != MASTER_SIZE else 0
        else:
            gathered = (2 * block + rest) * width
        here = 0 if settings.cpu_offload else 1
        share *= here
        used = [
            share * MASTER_SIZE * len(roles),
            gathered,
            share * MASTER_SIZE * trained
            + (0 if settings.strategy in REPLICATED else 2 * block * 4),
            share * MOMENTS_SIZE * trained,
            share * AVERAGE_SIZE if settings.average else 0,
            self._kept(settings) // settings.sequence_parallel_size,
        ]
        return MemoryEstimate(
            parameters=used[0],
            gathered=used[1],
            gradients=used[2],
            optimizer=used[3],
            average=used[4],
            activations=used[5],
            overhead=CONTEXT_BYTES + int(SLACK * sum(used)),
        )

    def savings(self, settings: MemorySettings) -> list[Saving]:
        """What would help, the largest saving first."""
        whole = self.estimate(settings).total
        found = []
        for change, changed in _changes(settings):
            total = self.estimate(changed).total
            if total < whole:
                found.append(Saving(change=change, saves=whole - total, total=total))
        return sorted(found, key=lambda saving: -saving.saves)

    def _build(self) -> nn.Module:
        return self._backbone.build(device="meta", seed=0)

    def _share(self, settings: MemorySettings) -> tuple[int, int, int]:
        """Elements of one role: stored by this device, of the largest block, outside the blocks."""
        key = (settings.world_size, settings.local_world_size, settings.strategy)
        if key not in self._shares:
            block_class = self._resolved.route.spec.block_class
            module = self._build()
            blocks = [m for m in module.modules() if type(m).__name__ == block_class]
            sizes = [sum(p.numel() for p in block.parameters()) for block in blocks]
            rest = sum(p.numel() for p in module.parameters()) - sum(sizes)
            with fake_group(settings) as group:
                lay_out(
                    module,
                    group,
                    strategy=settings.strategy,
                    block_class=block_class,
                    param_dtype=None,
                    reduce_dtype=None,
                )
                stored = sum(local(p).numel() for p in module.parameters())
            self._shares[key] = (stored, max(sizes, default=0), rest)
        return self._shares[key]

    def _kept(self, settings: MemorySettings) -> int:
        """Bytes a forward keeps for its backward, without sequence parallelism."""
        every = self._saved(settings, recomputed=False)
        if not settings.activation_checkpointing:
            return every
        kept = self._saved(settings, recomputed=True)
        layers = self._backbone.profile.dims.num_layers
        recomputed = -(-layers // settings.recompute_every)
        inside = max(0, every - kept) // layers
        return kept + inside * (layers - recomputed + 1)

    def _saved(self, settings: MemorySettings, *, recomputed: bool) -> int:
        key = (settings.micro_batch_size, settings.param_dtype, recomputed)
        if key not in self._activations:
            module = self._build().train()
            if settings.param_dtype is not None:
                module = module.to(DTYPES[settings.param_dtype])
            if recomputed:
                checkpoint_activations(module, block_class=self._resolved.route.spec.block_class)
            batch = self._batch(settings.micro_batch_size)
            with _FusedAttention(), saved_bytes(module) as counted:
                conditions = self._backbone.conditions(batch)
                frames = batch.latents_BFCHW.shape[:2]
                sigma = torch.full(frames, 0.5, device="meta")
                causal = self._resolved.route.causal_mode != "bidirectional"
                context: dict[str, Any] = {}
                clean: CleanContext | None = None
                if causal:
                    flow_map = self._resolved.route.objective == FLOW_MAP
                    clean = self._backbone.clean_context(batch.latents_BFCHW, shared=flow_map)
                    context = {"layout": "teacher_forcing", "context": clean}
                self._backbone.velocity(module, batch.latents_BFCHW, sigma, conditions, **context)
            # A flow map keeps the clean half's keys and values for its further forwards, and copies
            # those of the samples it runs again.
            shared = (*clean.keys, *clean.values) if clean is not None else ()
            self._activations[key] = counted[0] + 2 * sum(tensor.nbytes for tensor in shared)
        return self._activations[key]

    def _batch(self, batch_size: int) -> LatentBatch:
        profile, data = self._backbone.profile, self._resolved.config.data
        dims, geometry = profile.dims, profile.geometry
        frames = data.latent_frames
        stride = geometry.spatial_stride
        size = (data.height // stride, data.width // stride)
        names = tuple(str(row) for row in range(batch_size))
        zeros = tuple(0 for _ in names)
        with torch.device("meta"):
            return LatentBatch(
                latents_BFCHW=torch.empty(batch_size, frames, geometry.channels, *size),
                text_BTD=torch.empty(batch_size, dims.text_len, dims.text_dim),
                viewmats_BF44=torch.empty(batch_size, frames, 4, 4),
                intrinsics_B33=torch.empty(batch_size, 3, 3),
                sample_ids=names,
                start_frames=zeros,
                slots=zeros,
                occurrences=zeros,
            )


@contextmanager
def fake_group(settings: MemorySettings) -> Iterator[RankGroup]:
    """Rank 0 of a process group of the wanted size in which nothing is sent."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    launcher = Launcher(
        world_rank=0,
        world_size=settings.world_size,
        local_rank=0,
        local_world_size=settings.local_world_size,
        under_launcher=True,
        token="plan",
    )
    dist.init_process_group("fake", rank=0, world_size=settings.world_size, store=FakeStore())
    try:
        yield RankGroup(
            launcher=launcher,
            device=torch.device("cpu"),
            place=place_of(0, world_size=settings.world_size, sp_size=1),
            collectives=Collectives(world_rank=0, world_size=settings.world_size),
        )
    finally:
        dist.destroy_process_group()


@contextmanager
def saved_bytes(module: nn.Module) -> Iterator[list[int]]:
    """Counts the bytes autograd keeps inside the block, each storage once, parameters not."""
    own = {p.untyped_storage()._cdata for p in module.parameters()}
    seen: dict[int, Any] = {}
    total = [0]

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own and storage._cdata not in seen:
            seen[storage._cdata] = storage
            total[0] += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield total


class _FusedAttention(TorchFunctionMode):
    """Attention as fused kernels keep it for the backward: inputs, output and one number a row; the
    meta device would write out the whole matrix of weights."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.scaled_dot_product_attention:
            return _Attention.apply(*args[:3])
        return func(*args, **(kwargs or {}))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("only forwards are counted")


def _changes(settings: MemorySettings) -> Iterator[tuple[str, MemorySettings]]:
    if not settings.activation_checkpointing:
        yield (
            "train.fsdp.activation_checkpointing=true",
            replace(settings, activation_checkpointing=True),
        )
    if settings.strategy != "FULL_SHARD" and settings.world_size > 1:
        yield "train.fsdp.strategy=FULL_SHARD", replace(settings, strategy="FULL_SHARD")
    if settings.param_dtype != "bfloat16":
        yield "train.fsdp.param_dtype=bfloat16", replace(settings, param_dtype="bfloat16")
    if settings.micro_batch_size > 1:
        yield (
            "train.micro_batch_size=1, and train.grad_accum raised as much",
            replace(settings, micro_batch_size=1),
        )
    shared = settings.sequence_parallel_size * 2
    if settings.world_size % shared == 0:
        yield (
            f"distributed.sequence_parallel_size={shared}, and train.grad_accum=2 times as much",
            replace(settings, sequence_parallel_size=shared),
        )
    if settings.average:
        yield "train.ema.enabled=false", replace(settings, average=False)
    twice = settings.world_size * 2
    yield f"distributed.world_size={twice}", replace(settings, world_size=twice)


def _size(dtype: str | None) -> int:
    return DTYPES[dtype].itemsize if dtype else MASTER_SIZE
