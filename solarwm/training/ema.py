"""A running average of a module's weights, fp32, each rank averaging the shard it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from solarwm.distributed.sharding import local


class ShardEma:
    """s <- d s + (1 - d) w in fp32 over local shards, without communication.

    Made from the live weights. After completed step n it is updated when n >= start_step and
    n % update_every == 0; while n < warmup_steps the decay is 0, a pure copy. With `starts_as_copy`
    the first update is a copy too, and before it there is no average. `shadow` holds one tensor a
    parameter, laid out like it, by parameter name.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        decay: float,
        start_step: int = 0,
        update_every: int = 1,
        warmup_steps: int = 0,
        starts_as_copy: bool = False,
    ) -> None:
        if not 0.0 <= decay <= 1.0:
            raise ValueError(f"ema decay {decay} is outside 0..1")
        self.decay = decay
        self.start_step = start_step
        self.update_every = max(1, update_every)
        self.warmup_steps = warmup_steps
        self.starts_as_copy = starts_as_copy
        self.num_updates = 0
        self._module = module
        kind = torch.float32
        self.shadow = {
            name: parameter.detach().to(torch.promote_types(parameter.dtype, kind), copy=True)
            for name, parameter in module.named_parameters()
        }

    @property
    def exists(self) -> bool:
        """Whether there is an average: from the start, or from the first update on."""
        return self.num_updates > 0 or not self.starts_as_copy

    @torch.no_grad()
    def update(self, step: int) -> bool:
        """Take in the weights after completed step `step`; False when this step is not averaged."""
        if step < self.start_step or step % self.update_every:
            return False
        copying = step < self.warmup_steps or not self.exists
        decay = 0.0 if copying else self.decay
        averages = [local(tensor) for tensor in self.shadow.values()]
        weights = [
            local(parameter.detach()).to(average.dtype)
            for average, parameter in zip(averages, self._module.parameters(), strict=True)
        ]
        torch._foreach_mul_(averages, decay)
        torch._foreach_add_(averages, weights, alpha=1.0 - decay)
        self.num_updates += 1
        return True

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The module holds the averages inside the block and its own bits again after it."""
        live = [local(parameter.detach()).clone() for parameter in self._module.parameters()]
        self._assign([local(tensor) for tensor in self.shadow.values()])
        try:
            yield
        finally:
            self._assign(live)

    @torch.no_grad()
    def _assign(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self._module.parameters(), values, strict=True):
            local(parameter.detach()).copy_(value)
