"""How parameters lie on the ranks: replicated with summed gradients, or sharded with FSDP2.

Whatever the layout, after `reduce` a gradient is the SUM over all ranks of what each rank's
backward gave; the loss is scaled by the global batch beforehand, so that equal global batches give
equal gradients anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from solarwm.distributed.collectives import collective_guard
from solarwm.distributed.group import RankGroup
from solarwm.distributed.mesh import shard_mesh

REPLICATED = ("none", "NO_SHARD")
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
BUCKET_BYTES = 16 * 2**20


class Layout(Protocol):
    """One way to lay a module's parameters out."""

    @property
    def name(self) -> str:
        """The strategy, as the config spells it."""
        ...

    def reduce(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make every gradient the sum over all ranks. Collective over all ranks."""
        ...

    def norm(self, parameters: Sequence[nn.Parameter]) -> torch.Tensor:
        """Global 2-norm of the gradients, fp32, equal on all ranks. Collective over all ranks."""
        ...

    def gathered(self, module: nn.Module) -> AbstractContextManager[None]:
        """All of `module` on every rank inside the block, for forwards without gradient that ranks
        make in unequal numbers. Entering is collective over all ranks."""
        ...

    def settle(self, module: nn.Module) -> None:
        """Give back what forwards without gradient left gathered. To be called after them, before
        the module's parameters are read or changed."""
        ...


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of `tensor` this rank holds: its shard, or all of it. Shares memory."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def gradients(parameters: Iterable[nn.Parameter]) -> list[torch.Tensor]:
    """The local gradients that exist, in parameter order."""
    return [local(p.grad) for p in parameters if p.grad is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """Every rank holds everything; gradients are summed in buckets of equal dtype."""

    group: RankGroup
    name: str = "none"

    def reduce(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum gradients in place, all buckets in flight at once. Collective over all ranks."""
        if self.group.world_size == 1:
            return
        pending = []
        for number, bucket in enumerate(_buckets(gradients(parameters))):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            label = f"sum gradients, bucket {number}"
            pending.append(
                (bucket, flat, self.group.collectives.start_sum(flat, label=label), label)
            )
        for bucket, flat, work, label in pending:
            self.group.collectives.finish(work, label=label)
            parts = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(bucket, [p.view_as(g) for p, g in zip(parts, bucket, strict=True)])

    def norm(self, parameters: Sequence[nn.Parameter]) -> torch.Tensor:
        """Global norm; no communication, since all ranks hold equal gradients after `reduce`."""
        return _square_sum(gradients(parameters), self.group.device).sqrt()

    def gathered(self, module: nn.Module) -> AbstractContextManager[None]:
        """Nothing to do: everything is here."""
        return nullcontext()

    def settle(self, module: nn.Module) -> None:
        """Nothing to do: nothing is gathered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """FSDP2: each rank holds a shard; gradients arrive reduced and sharded from the backward."""

    group: RankGroup
    name: str
    num_replicas: int

    def reduce(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing to do: the backward has reduced."""

    def norm(self, parameters: Sequence[nn.Parameter]) -> torch.Tensor:
        """Global norm from the shards. Collective over all ranks."""
        square = _square_sum(gradients(parameters), self.group.device)
        self.group.collectives.sum_(square, label="gradient norm")
        return (square / self.num_replicas).sqrt()

    @contextmanager
    def gathered(self, module: nn.Module) -> Iterator[None]:
        """See `Layout.gathered`; parameters in the dtype of compute. Entering is collective over
        all ranks."""
        from torch.distributed.fsdp import FSDPModule

        parts = [part for part in module.modules() if isinstance(part, FSDPModule)]
        self.settle(module)
        with collective_guard("gather parameters"):
            for part in parts:
                part.unshard()
                part.set_reshard_after_forward(False, recurse=False)
        try:
            yield
        finally:
            for part in parts:
                again = part is not module and self.name != "SHARD_GRAD_OP"
                part.set_reshard_after_forward(again, recurse=False)
                part.reshard()

    def settle(self, module: nn.Module) -> None:
        """Shard the root again, which only a backward does by itself."""
        from torch.distributed.fsdp import FSDPModule

        if isinstance(module, FSDPModule):
            module.reshard()


def lay_out(
    module: nn.Module,
    group: RankGroup,
    *,
    strategy: str,
    block_class: str,
    param_dtype: str | None,
    reduce_dtype: str | None,
    cpu_offload: bool = False,
) -> Layout:
    """Lay `module` out by `strategy`, in place. Collective over all ranks.

    `none` and `NO_SHARD` replicate; `FULL_SHARD`, `SHARD_GRAD_OP` (parameters stay gathered between
    forward and backward) and `HYBRID_SHARD` (shards within a machine, replicas across) shard.

    Sharding wraps every submodule whose class is called `block_class`, then the root. Compute runs
    in `param_dtype`, gradient sums in `reduce_dtype`; the stored parameters keep their own dtype.
    `cpu_offload` keeps shards and their gradients in host memory.
    """
    if strategy in REPLICATED:
        return Replicated(group=group)
    from torch.distributed.fsdp import (
        CPUOffloadPolicy,
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
    )

    mesh = shard_mesh(
        strategy,
        device_type=group.device.type,
        world_size=group.world_size,
        local_world_size=group.launcher.local_world_size,
    )
    policy = MixedPrecisionPolicy(
        param_dtype=DTYPES[param_dtype] if param_dtype else None,
        reduce_dtype=DTYPES[reduce_dtype] if reduce_dtype else None,
        cast_forward_inputs=False,
    )
    offload: dict[str, Any] = {}
    if cpu_offload and group.device.type != "cpu":
        offload = {"offload_policy": CPUOffloadPolicy()}
    gather_again = strategy != "SHARD_GRAD_OP"
    with collective_guard("shard parameters"):
        for block in [m for m in module.modules() if type(m).__name__ == block_class]:
            fully_shard(
                block, mesh=mesh, mp_policy=policy, reshard_after_forward=gather_again, **offload
            )
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False, **offload)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    num_replicas = mesh.size(0) if mesh.ndim == 2 else 1
    return Sharded(group=group, name=strategy, num_replicas=num_replicas)


def compute_dtype(sharding: Any) -> torch.dtype | None:
    """The dtype to compute in where the layout does not cast by itself; None keeps the parameters'."""
    if sharding.strategy not in REPLICATED or sharding.param_dtype in (None, "float32", "float64"):
        return None
    return DTYPES[sharding.param_dtype]


def cast_as_sharded(module: nn.Module, sharding: Any) -> None:
    """Give an unsharded module the parameter dtype that a sharded layout would compute it in."""
    if sharding.strategy in REPLICATED or sharding.param_dtype is None:
        return
    for parameter in module.parameters():
        parameter.data = parameter.data.to(DTYPES[sharding.param_dtype])


def fingerprint(parameters: Iterable[nn.Parameter]) -> torch.Tensor:
    """Two float64 sums over all local values: equal replicas give equal bits."""
    total = torch.zeros(2, dtype=torch.float64)
    for index, parameter in enumerate(parameters):
        values = local(parameter.detach()).double()
        total[0] += values.sum().cpu()
        total[1] += (index + 1) * values.abs().sum().cpu()
    return total


def _square_sum(parts: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    if not parts:
        return torch.zeros((), device=device)
    norms = torch._foreach_norm(
        parts, 2.0, dtype=torch.promote_types(parts[0].dtype, torch.float32)
    )
    return torch.stack(list(norms)).square().sum().to(device)


def _buckets(parts: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    buckets: list[list[torch.Tensor]] = []
    filled = 0
    for part in parts:
        size = part.numel() * part.element_size()
        if not buckets or filled + size > BUCKET_BYTES or part.dtype != buckets[-1][0].dtype:
            buckets.append([])
            filled = 0
        buckets[-1].append(part)
        filled += size
    return buckets
